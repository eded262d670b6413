import { testSettings } from '../support/setting.ts';
import { ADMIN_SETTINGS } from '../support/settings-of-admin.ts';

testSettings(ADMIN_SETTINGS);
