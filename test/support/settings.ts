import type { Settings } from './setting.ts';
import { CARD_SETTINGS, X402_SETTINGS } from './settings-of-payments.ts';
import { ADMIN_SETTINGS, EDGE_SETTINGS, PROCESS_SETTINGS } from './settings-of-service.ts';
import { FEEDBACK_SETTINGS, JOBS_SETTINGS, SPEECH_SETTINGS } from './settings-of-speech.ts';

/** Every setting. */
export const SETTINGS: Settings = {
  ...PROCESS_SETTINGS,
  ...SPEECH_SETTINGS,
  ...CARD_SETTINGS,
  ...JOBS_SETTINGS,
  ...FEEDBACK_SETTINGS,
  ...X402_SETTINGS,
  ...EDGE_SETTINGS,
  ...ADMIN_SETTINGS,
};
