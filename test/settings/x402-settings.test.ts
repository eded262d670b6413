import { testSettings } from '../support/setting.ts';
import { X402_SETTINGS } from '../support/settings-of-x402.ts';

testSettings(X402_SETTINGS);
