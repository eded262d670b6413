import { testSettings } from '../support/setting.ts';
import { FEEDBACK_SETTINGS } from '../support/settings-of-feedback.ts';

testSettings(FEEDBACK_SETTINGS);
