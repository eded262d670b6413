import type { IncomingHttpHeaders } from 'node:http';
import { failure } from '../http/errors.ts';
import { PREPAID } from '../x402/prepaid.ts';

const DIRECT_HEADER = 'payment-signature';
const X402_HEADERS = [DIRECT_HEADER, ...PREPAID.headers];

/** Refuses a card request that carries another flow's headers (R36); undefined when it carries none. */
export function refuseX402Headers(headers: IncomingHttpHeaders) {
  const found = X402_HEADERS.find((name) => headers[name] !== undefined);
  return found === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${found} belongs to another payment flow. Send x-credit-account only.`, {
        field: found,
        rule: 'one flow',
      });
}

/** How a request at an x402 endpoint means to pay; `none` asks for the challenge. */
export type X402Flow = 'none' | 'direct' | 'prepaid';

/** Tells the flow of an x402 request by its headers, or refuses those of two flows (R36). */
export function x402FlowOf(headers: IncomingHttpHeaders) {
  const prepaid = PREPAID.headers.find((name) => headers[name] !== undefined);
  const isDirect = headers[DIRECT_HEADER] !== undefined;
  const foreign = headers['x-credit-account'] !== undefined ? 'x-credit-account' : isDirect ? prepaid : undefined;
  if (foreign !== undefined) {
    return {
      refusal: failure('INVALID_REQUEST', `${foreign} belongs to another payment flow. Send the headers of one flow.`, {
        field: foreign,
        rule: 'one flow',
      }),
    };
  }
  const flow: X402Flow = isDirect ? 'direct' : prepaid === undefined ? 'none' : 'prepaid';
  return { flow };
}
