import { testSettings } from '../support/setting.ts';
import { TELEMETRY_SETTINGS } from '../support/settings-of-telemetry.ts';

testSettings(TELEMETRY_SETTINGS);
