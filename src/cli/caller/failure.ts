import { DamagedBudgetError } from '../../budget/budget-file.ts';
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
} from '../../client/errors.ts';
import { FileBusyError } from '../../lib/file-lock.ts';
import { formatUsd } from '../../lib/money.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { UsageError } from '../usage-error.ts';
import { EXIT, type ExitCode } from './exit-codes.ts';

/** How a command ended that did not do what it was to do. */
export interface Failure {
  /** For programs. */
  readonly code: string;
  readonly exit: ExitCode;
  /** One line, with the way out. */
  readonly message: string;
  readonly [more: string]: unknown;
}

/** Thrown by a command that knows better than the client what is to be done. */
export class CommandError extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }
}

/** The options by the fields that the service finds fault with. */
const OPTIONS: Readonly<Record<string, string>> = {
  text: 'The text',
  model: '--model (speechgate models lists them)',
  voice: '--voice (speechgate voices lists them)',
  speed: '--speed',
  amountMicroUsd: 'AMOUNT',
  message: 'The message',
  category: '--category',
};
const CAPS = {
  client: 'this command',
  day: 'today',
  total: 'all purchases',
  unconfirmed: "what was signed and, by the service's word alone, not charged",
};

/** What is told of an error, and the exit code. */
export function failureOf(error: unknown): Failure {
  if (error instanceof CommandError) return error.failure;
  if (!(error instanceof Error)) return unforeseen(new Error(String(error)));
  const { message } = error;
  if (error instanceof UsageError) return { code: 'USAGE', exit: EXIT.usage, message };
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) return unknownOutcome(error);
  if (error instanceof AudioLostError) return audioLost(error);
  if (error instanceof UntrustedError) {
    const { reason } = error;
    return { code: 'UNTRUSTED', exit: EXIT.failed, message: `${message} Nothing was signed.`, reason };
  }
  if (error instanceof UnreachableError) return { code: 'UNREACHABLE', exit: EXIT.failed, message };
  if (error instanceof ServiceError) return refused(error);
  if (error instanceof SpeechgateError) return { code: 'FAILED', exit: EXIT.failed, message };
  if (error instanceof DamagedBudgetError) return { code: 'BUDGET_DAMAGED', exit: EXIT.failed, message };
  if (error instanceof FileBusyError) return { code: 'FILE_BUSY', exit: EXIT.failed, message };
  if (error instanceof ForeignFileError) return { code: 'FOREIGN_FILE', exit: EXIT.failed, message };
  return unforeseen(error);
}

/** What the system refused has a code of its own, such as EACCES; anything else is a defect, and its place is told. */
function unforeseen({ name, message, stack, code }: NodeJS.ErrnoException): Failure {
  if (code !== undefined) return { code, exit: EXIT.failed, message };
  return { code: 'INTERNAL', exit: EXIT.failed, message: `${name}: ${message} (--json tells where)`, stack };
}

function overCap({ scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd }: OverCapError): Failure {
  const [wanted, left, limit] = [wantedMicroUsd, leftMicroUsd, limitMicroUsd].map(formatUsd);
  const message =
    scope === 'call'
      ? `This may cost ${wanted} USD, and a purchase may cost ${limit} (--max, or speechgate connect --max-per-call).`
      : `This may cost ${wanted} USD; ${left} are left of the ${limit} for ${CAPS[scope]} (speechgate budget shows it).`;
  const amounts = { limitMicroUsd, leftMicroUsd, wantedMicroUsd };
  return { code: 'OVER_CAP', exit: EXIT.overCap, message: `${message} Nothing was signed.`, scope, ...amounts };
}

function unknownOutcome({ pending }: OutcomeUnknownError): Failure {
  const { identifier } = pending;
  const resume = `speechgate resume ${identifier}`;
  const message = `Whether ${identifier} was charged is not known yet. Don't pay again; ask with: ${resume}`;
  return { code: 'OUTCOME_UNKNOWN', exit: EXIT.unknownOutcome, message, identifier, resume };
}

function audioLost({ message, chargedMicroUsd, maxMicroUsd }: AudioLostError): Failure {
  if (chargedMicroUsd !== null) return { code: 'AUDIO_LOST', exit: EXIT.failed, message, chargedMicroUsd };
  const wayOut = 'Whether it was charged, speechgate balance tells. With --durable it could be asked for again.';
  const lost = `The answer broke off. ${wayOut}`;
  return { code: 'AUDIO_LOST', exit: EXIT.unknownOutcome, message: lost, chargedMicroUsd, maxMicroUsd };
}

/** A service's words, as its own. */
export const serviceSays = (words: string): string => `The service says: ${serviceWords(words)}`;

function refused(error: ServiceError): Failure {
  const { code, status, details, traceId, retryAfterSeconds } = error;
  const told = { status, details, traceId, retryAfterSeconds };
  const says = serviceSays(error.message);
  if (error instanceof PaymentRequiredError) {
    return { code, exit: EXIT.noMoney, message: says, ...told, topUpUrl: error.topUpUrl };
  }
  if (error instanceof InvalidRequestError) {
    const option = OPTIONS[String(details?.field)];
    return { code, exit: EXIT.usage, message: option ? `${option}: ${says}` : says, ...told };
  }
  const again = retryAfterSeconds === null ? '' : ` Try again in ${retryAfterSeconds} s.`;
  return { code, exit: EXIT.failed, message: `${says}${again} (${code}, trace id ${traceId})`, ...told };
}
