import type { DirectReplays } from '../payments/direct-replays.ts';
import { NOTHING_CHARGED } from '../payments/payment-outcome.ts';
import { readPaymentHeader } from '../payments/payment-request.ts';
import { readPrepaidHeaders } from '../payments/prepaid-balance.ts';
import type { PrepaidReplays } from '../payments/prepaid-replays.ts';
import type { PreviousRequests } from './x402-speech.ts';

/** Earlier requests that were paid on the chain, by their payment identifiers. */
export const previousDirect = (replays: DirectReplays): PreviousRequests => ({
  name: 'direct',
  look: async (headers, { method, url, bytes, traceId }) => {
    const shown = readPaymentHeader(headers);
    if (shown.outcome === 'refused') return undefined;
    const found = await replays.find({ method, url, bytes, traceId, envelope: shown.credential });
    return found ?? { outcome: 'new', payment: NOTHING_CHARGED };
  },
});

/** Earlier requests that were paid from a prepaid balance, by their nonces. */
export const previousPrepaid = (replays: PrepaidReplays): PreviousRequests => ({
  name: 'prepaid',
  look: async (headers, request) => {
    const shown = readPrepaidHeaders(headers);
    return shown.outcome === 'refused' ? undefined : replays.look(shown.credential, request);
  },
});
