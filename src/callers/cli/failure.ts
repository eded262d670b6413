import { UsageError } from '../../lib/arguments.ts';
import { FileBusyError } from '../../lib/file-lock.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { serviceSays } from '../../lib/service-words.ts';
import { DamagedBudgetError } from '../budget/budget-store.ts';
import {
  AudioLostError,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  ServiceError,
  SpeechgateError,
  UnreachableError,
  UntrustedError,
} from '../client/errors.ts';
import { CAP_OPTIONS, lackOfMoney, overCapText } from '../client/money-text.ts';

export interface Failure {
  readonly code: string;
  readonly exit: ExitCode;
  readonly message: string;
  readonly [more: string]: unknown;
}

export class CommandError extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }
}

const OPTIONS: Readonly<Record<string, string>> = {
  text: 'The text',
  model: '--model (see speechgate models)',
  voice: '--voice (see speechgate voices)',
  speed: '--speed',
  amountMicroUsd: 'AMOUNT',
  message: 'The message',
  category: '--category',
};

export function failureOf(error: unknown): Failure {
  if (error instanceof CommandError) return error.failure;
  if (!(error instanceof Error)) return unexpected(new Error(String(error)));
  const { message } = error;
  if (error instanceof UsageError) return { code: 'USAGE', exit: EXIT.usage, message };
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) return unknownOutcome(error);
  if (error instanceof AudioLostError) return audioLost(error);
  if (error instanceof UntrustedError) return { code: 'UNTRUSTED', exit: EXIT.failed, message, reason: error.reason };
  if (error instanceof UnreachableError) return { code: 'UNREACHABLE', exit: EXIT.failed, message };
  if (error instanceof ServiceError) return refused(error);
  if (error instanceof SpeechgateError) return { code: 'FAILED', exit: EXIT.failed, message };
  if (error instanceof DamagedBudgetError) return { code: 'BUDGET_DAMAGED', exit: EXIT.failed, message };
  if (error instanceof FileBusyError) return { code: 'FILE_BUSY', exit: EXIT.failed, message };
  if (error instanceof ForeignFileError) return { code: 'FOREIGN_FILE', exit: EXIT.failed, message };
  return unexpected(error);
}

/** A system error has a code, such as EACCES. Anything else is a bug and gets its stack. */
function unexpected({ name, message, stack, code }: NodeJS.ErrnoException): Failure {
  if (code !== undefined) return { code, exit: EXIT.failed, message };
  return {
    code: 'INTERNAL',
    exit: EXIT.failed,
    message: `Unexpected error (${name}: ${message}). Run speechgate resume --list: it lists purchases that may have been charged. Report this bug with the output of --json.`,
    stack,
  };
}

function overCap(error: OverCapError): Failure {
  const { scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd, used } = error;
  const option = `${scope === 'call' ? '--max or ' : ''}speechgate connect ${CAP_OPTIONS[scope]}`;
  const message = `${overCapText(error)} Raise the cap with ${option}. You were not charged for this speech.`;
  return { code: 'OVER_CAP', exit: EXIT.overCap, message, scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd, ...used };
}

function unknownOutcome({ pending }: OutcomeUnknownError): Failure {
  const { identifier } = pending;
  const resume = `speechgate resume ${identifier}`;
  const message = `The outcome of the purchase ${identifier} is unknown, so you may have been charged. Do not pay again, but run: ${resume}`;
  return { code: 'OUTCOME_UNKNOWN', exit: EXIT.unknownOutcome, message, identifier, resume };
}

function audioLost({ message, chargedMicroUsd, maxMicroUsd }: AudioLostError): Failure {
  if (chargedMicroUsd !== null) return { code: 'AUDIO_LOST', exit: EXIT.failed, message, chargedMicroUsd };
  const text =
    'The audio ended early and cannot be fetched again. You may have been charged: run speechgate balance, and use --durable next time.';
  return { code: 'AUDIO_LOST', exit: EXIT.unknownOutcome, message: text, chargedMicroUsd, maxMicroUsd };
}

function refused(error: ServiceError): Failure {
  const { code, status, details, traceId, retryAfterSeconds } = error;
  const report = { status, details, traceId, retryAfterSeconds };
  const says = serviceSays(error.message);
  if (error instanceof PaymentRequiredError) {
    const exit = lackOfMoney(error) ? EXIT.noMoney : EXIT.failed;
    return { code, exit, message: says, ...report, topUpUrl: error.topUpUrl };
  }
  if (error instanceof InvalidRequestError) {
    const option = OPTIONS[String(details?.field)];
    return { code, exit: EXIT.usage, message: option ? `${option}: ${says}` : says, ...report };
  }
  const retry = retryAfterSeconds === null ? '' : ` Retry in ${retryAfterSeconds} s.`;
  return {
    code,
    exit: EXIT.failed,
    message: `${says}${retry} (${code}${traceId ? `, trace id ${traceId}` : ''})`,
    ...report,
  };
}

/** Documented in every --help and in docs/clients.md. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  noMoney: 3,
  overCap: 4,
  unknownOutcome: 5,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_HELP = `Exit codes: 0 done, 1 the service or something else failed, 2 invalid arguments or settings, 3 insufficient funds,
4 over a cap (nothing was signed), 5 unknown outcome (run speechgate resume), 130 interrupted`;
