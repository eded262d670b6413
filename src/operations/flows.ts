import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';

/** A flow as the parts list names it; its headers are known also while it is off. */
export interface OfferedFlow<Flow> {
  readonly headers: readonly string[];
  /** Undefined while it is off (R47). */
  readonly flow: Flow | undefined;
}

type Headed = Pick<OperationContext, 'hasHeader'>;

/** Refuses a request that carries one of these headers, which belong to another flow (R36); undefined when it carries none. */
export function refuseForeignHeaders(request: Headed, foreign: readonly string[]) {
  const found = foreign.find((name) => request.hasHeader(name));
  return found === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${found} belongs to another payment flow. Send the headers of one flow.`, {
        field: found,
        rule: 'one flow',
      });
}

/** Refuses a payment in the header of x402 version 1, which would not be looked at; undefined without that header. */
export function refuseFormerHeader(request: Headed) {
  if (!request.hasHeader('x-payment')) return undefined;
  const message =
    'x-payment is the header of x402 version 1. Send an x402 version 2 payload in payment-signature. You were not charged.';
  return failure('INVALID_PAYMENT_PAYLOAD', message, { field: 'x-payment', rule: 'payment-signature' });
}

/**
 * Tells the flow whose headers a request shows, undefined for one that shows none, or refuses it with those of two (R36).
 * @param foreign headers of flows that this endpoint does not offer
 */
export function chooseFlow<Offered extends Pick<OfferedFlow<unknown>, 'headers'>>(
  flows: readonly Offered[],
  request: Headed,
  foreign: readonly string[],
) {
  const [chosen, other] = flows.filter(({ headers }) => headers.some((name) => request.hasHeader(name)));
  const refusal = refuseForeignHeaders(request, foreign) ?? (other && refuseForeignHeaders(request, other.headers));
  return refusal ?? { chosen };
}
