/** From which step on the gateway's own server serves the request. */
export const CONTRACT = 'contract: body, validators, serializers, errors, connections, graceful stop';
export const ORDER = 'catalog, order and price';
export const PAYMENT_HEADER = 'payment header: schema, offer, own signature check';
export const LEDGER = 'ledger or payment states, rate window, unpaid work, lease, receipt';
export const AUDIO = 'upstream: audio check, deadline, failover, bounded memory';

const HTTP = [
  'floor',
  'trace id',
  'security and CORS headers',
  'metrics',
  'log line',
  'limit by address',
  CONTRACT,
  ORDER,
] as const;

/**
 * What a request costs beyond its floor, in the order in which `servers/duties.ts` adds it: each step has all steps
 * before it. After the last one comes the gateway itself, which adds the pipeline (`speak`) and its operation.
 */
export const DUTIES = {
  card: [...HTTP, LEDGER, AUDIO],
  prepaid: [...HTTP, LEDGER, AUDIO],
  direct: [...HTTP, PAYMENT_HEADER, LEDGER, AUDIO],
} as const;

export type DutyFlow = keyof typeof DUTIES;
export type Duty = (typeof DUTIES)[DutyFlow][number];

export const REST = 'pipeline: permits, pauses, look-up, refusals, outcome of the payment, callers who disconnect';
