import type { StandIn } from '../http/bare-request.ts';
import { SPEECH_EXAMPLE } from '../x402/discovery.ts';

/**
 * What a directory's probe is taken for, by operationId, where it is answered with 402: the discovery example (R59).
 * @param paymentHeaders of every flow; a request that shows one of them is no probe
 */
export const probeStandIns = (paymentHeaders: readonly string[]): Readonly<Record<string, StandIn>> => ({
  getX402Speech: { query: SPEECH_EXAMPLE, body: undefined, unlessHeaders: paymentHeaders },
  createX402Speech: { query: {}, body: SPEECH_EXAMPLE, unlessHeaders: paymentHeaders },
});
