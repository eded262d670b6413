import { testSettings } from '../support/setting.ts';
import { EDGE_SETTINGS } from '../support/settings-of-edge.ts';

testSettings(EDGE_SETTINGS);
