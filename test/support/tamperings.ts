import type { Tampering } from './tampering.ts';
import { PAYMENTS } from './tamperings-of-payments.ts';
import { PURCHASES } from './tamperings-of-purchases.ts';
import { STATE } from './tamperings-of-state.ts';
import { TRANSFERS } from './tamperings-of-transfers.ts';

export const TAMPERINGS: readonly Tampering[] = [...TRANSFERS, ...PURCHASES, ...PAYMENTS, ...STATE];
