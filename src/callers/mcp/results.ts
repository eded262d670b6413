import type { CallToolResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { formatUsd } from '../../lib/money.ts';
import { serviceId, serviceNames, serviceSays, serviceWords } from '../../lib/service-words.ts';
import type { FileBudget } from '../budget/file-budget.ts';
import {
  AudioLostError,
  type Flow,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  ServiceError,
  SpeechgateError,
  UntrustedError,
} from '../client/index.ts';
import { CAP_OPTIONS, lackOfMoney, overCapText } from '../client/money-text.ts';
import { isTransient } from '../client/service-error.ts';

export class ToolError extends Error {}

const USD = 'US dollars as a decimal, such as 0.000198';

export const usd = (description: string) => z.string().describe(`${description}, in ${USD}.`);

export const usdOrNull = (description: string) => z.string().nullable().describe(`${description}, in ${USD}.`);

export const formatted = (microUsd: bigint | null): string | null => (microUsd === null ? null : formatUsd(microUsd));

export const leftUsd = async (budget: FileBudget, flow: Flow): Promise<string | null> =>
  formatted((await budget.read(flow)).leftMicroUsd);

/** Turns known errors into texts that state the charge. Rethrows unexpected errors. */
export async function toResult(
  call: () => Promise<readonly [document: Record<string, unknown>, line: string]>,
): Promise<CallToolResult> {
  try {
    const [structuredContent, text] = await call();
    return { structuredContent, content: [{ type: 'text', text }] };
  } catch (error) {
    return { content: [{ type: 'text', text: messageOf(error) }], isError: true };
  }
}

function messageOf(error: unknown): string {
  if (error instanceof ToolError) return error.message;
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) {
    const { identifier } = error.pending;
    return (
      `The outcome of the purchase ${identifier} is unknown. Call speak with {"resume": "${identifier}"}, which never pays ` +
      'twice. The same text would be a new purchase. You may have been charged, and the price stays reserved in the budget.'
    );
  }
  if (error instanceof AudioLostError)
    return `${error.message} The budget counts the price as spent, and another call is a new purchase.`;
  if (error instanceof PaymentRequiredError) return paymentRefused(error);
  if (error instanceof PriceChangedError) return error.message;
  if (error instanceof RateLimitedError)
    return `Too many requests. ${retryText(error)} Nothing was charged. ${serviceSays(error.message)}`;
  if (error instanceof InvalidRequestError) {
    const { field, allowed } = error.details ?? {};
    if (!FIELDS.has(field))
      return `The service refused the request. Nothing was charged. ${serviceSays(error.message)}`;
    const known = Array.isArray(allowed) ? ` Use one of ${serviceNames(allowed)}.` : '';
    return (
      `The service refused the argument ${field}.${known} Change this argument; list_voices lists models and voices. ` +
      `Nothing was charged. ${serviceSays(error.message)}`
    );
  }
  if (error instanceof ServiceError) {
    const [code, traceId] = [error.code, error.traceId].map(serviceId);
    return `The service failed (${code}, trace id ${traceId}). ${retryText(error)} Nothing was charged. ${serviceSays(error.message)}`;
  }
  if (error instanceof UntrustedError)
    return `The client does not trust the response of the service. ${serviceWords(error.message)}`;
  if (error instanceof SpeechgateError) return serviceWords(error.message);
  throw error;
}

function overCap(error: OverCapError): string {
  const { scope } = error;
  const option = `${CAP_OPTIONS[scope]}${scope === 'call' ? ' (or --max of speechgate mcp)' : ''}`;
  return (
    `This purchase is over the budget. ${overCapText(error)} Shorten the text, or ask your user to raise the budget with ` +
    `speechgate connect ${option}, and to restart this server. Nothing was signed or charged.`
  );
}

function paymentRefused(error: PaymentRequiredError): string {
  const lack = lackOfMoney(error);
  const told = lack
    ? `${lack.problem} Ask your user to ${lack.remedy.charAt(0).toLowerCase()}${lack.remedy.slice(1)}.`
    : 'The service refused the payment. Tell your user the reason.';
  return `${told} Nothing was charged. ${serviceSays(error.message)}`;
}

const FIELDS: ReadonlySet<unknown> = new Set(['text', 'model', 'voice', 'speed']);

function retryText(error: ServiceError): string {
  if (!isTransient(error)) return 'Tell your user: the same call fails again.';
  return error.retryAfterSeconds === null ? 'Retry later.' : `Retry in ${error.retryAfterSeconds} s.`;
}
