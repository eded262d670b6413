import type { IncomingHttpHeaders } from 'node:http';
import { failure } from '../http/errors.ts';
import { PREPAID } from '../x402/prepaid.ts';

const CARD_HEADER = 'x-credit-account';
const DIRECT_HEADER = 'payment-signature';
const X402_HEADERS = [DIRECT_HEADER, ...PREPAID.headers];
/** The headers of every payment flow. */
export const PAYMENT_HEADERS: readonly string[] = [CARD_HEADER, ...X402_HEADERS];

/** Refuses a request that carries one of these headers, which belong to another flow (R36); undefined when it carries none. */
export function refuseForeignHeaders(headers: IncomingHttpHeaders, foreign: readonly string[]) {
  const found = foreign.find((name) => headers[name] !== undefined);
  return found === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${found} belongs to another payment flow. Send the headers of one flow.`, {
        field: found,
        rule: 'one flow',
      });
}

/** Refuses a card request that carries another flow's headers (R36); undefined when it carries none. */
export const refuseX402Headers = (headers: IncomingHttpHeaders) => refuseForeignHeaders(headers, X402_HEADERS);

/** How a request at an x402 endpoint means to pay; `none` asks for the challenge. */
export type X402Flow = 'none' | 'direct' | 'prepaid';

/** Tells the flow of an x402 request by its headers, or refuses those of two flows (R36) and incomplete ones (R30). */
export function x402FlowOf(headers: IncomingHttpHeaders) {
  const isDirect = headers[DIRECT_HEADER] !== undefined;
  const foreign = refuseForeignHeaders(headers, [CARD_HEADER, ...(isDirect ? PREPAID.headers : [])]);
  if (foreign) return { refusal: foreign };
  const isPrepaid = PREPAID.headers.some((name) => headers[name] !== undefined);
  const incomplete = isPrepaid && refuseIncompletePrepaid(headers);
  if (incomplete) return { refusal: incomplete };
  const flow: X402Flow = isDirect ? 'direct' : isPrepaid ? 'prepaid' : 'none';
  return { flow };
}

/** Refuses a prepaid request that lacks one of the five headers (R30); undefined when it has them all. */
export function refuseIncompletePrepaid(headers: IncomingHttpHeaders) {
  const missing = PREPAID.headers.find((name) => headers[name] === undefined);
  return missing === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${missing} is missing. A prepaid request carries ${PREPAID.headers.join(', ')}.`, {
        field: missing,
        rule: 'required',
      });
}
