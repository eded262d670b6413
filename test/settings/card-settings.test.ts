import { testSettings } from '../support/setting.ts';
import { CARD_SETTINGS } from '../support/settings-of-card.ts';

testSettings(CARD_SETTINGS);
