import type { StandIn } from '../http/bare-request.ts';
import { SPEECH_EXAMPLE } from '../x402/discovery.ts';
import { PAYMENT_HEADERS } from './flows.ts';

/** What a directory's probe is taken for, by operationId, where it is answered with 402: the discovery example (R59). */
export const PROBE_STAND_INS: Readonly<Record<string, StandIn>> = {
  getX402Speech: { query: SPEECH_EXAMPLE, body: undefined, unlessHeaders: PAYMENT_HEADERS },
  createX402Speech: { query: {}, body: SPEECH_EXAMPLE, unlessHeaders: PAYMENT_HEADERS },
};
