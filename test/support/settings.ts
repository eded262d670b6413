import type { Settings } from './setting.ts';
import { ADMIN_SETTINGS } from './settings-of-admin.ts';
import { CARD_SETTINGS } from './settings-of-card.ts';
import { EDGE_SETTINGS } from './settings-of-edge.ts';
import { FEEDBACK_SETTINGS } from './settings-of-feedback.ts';
import { JOBS_SETTINGS } from './settings-of-jobs.ts';
import { PROCESS_SETTINGS } from './settings-of-process.ts';
import { SPEECH_SETTINGS } from './settings-of-speech.ts';
import { X402_SETTINGS } from './settings-of-x402.ts';

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
