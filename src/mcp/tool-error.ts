import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import {
  AudioLostError,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  ServiceError,
  SpeechgateError,
} from '../client/index.ts';
import { formatUsd } from '../lib/money.ts';
import { serviceId, serviceNames, serviceWords } from '../lib/service-words.ts';

/** A call that can't be done as it was asked; the message tells the agent what to do. */
export class ToolError extends Error {}

const SCOPES = {
  call: 'for one call',
  client: 'for this server',
  day: 'for a day (UTC)',
  total: 'in total',
  unconfirmed: "for what was signed and, by the service's word alone, not charged",
};

/** The result of a call that failed: what happened to the money, and what to do. Throws what nobody has foreseen. */
export function failed(error: unknown): CallToolResult {
  return { content: [{ type: 'text', text: messageOf(error) }], isError: true };
}

function messageOf(error: unknown): string {
  if (error instanceof ToolError) return error.message;
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) {
    const { identifier } = error.pending;
    return (
      `It is not known yet whether ${identifier} was charged; its price stays reserved in the budget. Don't ask for the ` +
      `same text again. Call speak with {"resume": "${identifier}"} instead, now or later: it is never paid twice.`
    );
  }
  if (error instanceof AudioLostError)
    return `${error.message} Its price counts as spent. Asking again is a new purchase.`;
  if (error instanceof PaymentRequiredError) return noMoney(error);
  if (error instanceof PriceChangedError) return error.message;
  if (error instanceof RateLimitedError)
    return `Too many requests. Nothing was charged. ${again(error)} ${words(error)}`;
  if (error instanceof InvalidRequestError) {
    const { field, allowed } = error.details ?? {};
    const about = FIELDS.has(field) ? ` (${field})` : '';
    const known = Array.isArray(allowed) ? ` There are: ${serviceNames(allowed)}.` : '';
    return (
      `The service refused this${about}.${known} Nothing was charged. Change the arguments; list_voices tells the ` +
      `models and voices. ${words(error)}`
    );
  }
  if (error instanceof ServiceError) {
    const [code, traceId] = [error.code, error.traceId].map(serviceId);
    return `Nothing was charged. ${again(error)} (${code}, trace id ${traceId}) ${words(error)}`;
  }
  if (error instanceof SpeechgateError) return serviceWords(error.message);
  throw error;
}

function overCap({ scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd }: OverCapError): string {
  const [wanted, left, limit] = [wantedMicroUsd, leftMicroUsd, limitMicroUsd].map(formatUsd);
  return (
    `Over the budget: this may cost ${wanted} USD, and ${left} USD are left of the ${limit} USD ${SCOPES[scope]}. ` +
    'Nothing was signed or charged. Shorten the text, or ask your user to raise the budget.'
  );
}

function noMoney(error: PaymentRequiredError): string {
  const { topUpUrl, missingMicroUsd } = error;
  const missing = missingMicroUsd === null ? '' : ` ${formatUsd(missingMicroUsd)} USD are missing.`;
  // The link names the account: who knows it could spend its credit.
  const way = topUpUrl
    ? 'Ask your user to run: speechgate top-up'
    : 'Ask your user to run: speechgate deposit 1 (or to put USDC into the wallet where each call is paid by itself)';
  return `No money:${missing} Nothing was charged. ${way}. ${words(error)}`;
}

/** What a request is made of, by the names that the service and the tools have for it. */
const FIELDS: ReadonlySet<unknown> = new Set(['text', 'model', 'voice', 'speed']);

/** Last in a message: nothing of ours follows what others have said. */
const words = ({ message }: ServiceError): string => `The service says: ${serviceWords(message)}`;

const again = ({ retryAfterSeconds }: ServiceError): string =>
  retryAfterSeconds === null ? 'Try again later.' : `Try again in ${retryAfterSeconds} s.`;
