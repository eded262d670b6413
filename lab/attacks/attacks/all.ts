import type { Attack } from '../attack.ts';
import { HANG_UPS } from './caller.ts';
import { CHAIN_EVENTS } from './chain.ts';
import { CRASHES } from './crash.ts';
import { ODD_PAYLOADS } from './payload.ts';
import { REPLAYS } from './replay.ts';
import { SETTLE_FAULTS } from './settle.ts';
import { OTHER_TERMS } from './terms.ts';
import { UPSTREAM_FAULTS } from './upstream.ts';
import { VERIFY_FAULTS } from './verify.ts';

/** In the order of the table. */
export const ATTACKS: readonly Attack[] = [
  ...REPLAYS,
  ...OTHER_TERMS,
  ...ODD_PAYLOADS,
  ...VERIFY_FAULTS,
  ...SETTLE_FAULTS,
  ...CHAIN_EVENTS,
  ...UPSTREAM_FAULTS,
  ...HANG_UPS,
  ...CRASHES,
];
