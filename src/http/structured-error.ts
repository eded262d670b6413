import type { components, JsonObject } from '../contract/types.ts';

export type ErrorCode = components['schemas']['ErrorCode'];
export type ErrorDetails = JsonObject | null;

/** The codes of the contract, and the one status of each (R72). */
export const statusOf = {
  INVALID_JSON: 400,
  INVALID_REQUEST: 400,
  UNKNOWN_TTS_MODEL: 400,
  INVALID_VOICE: 400,
  INVALID_SPEED: 400,
  INVALID_PAYMENT_PAYLOAD: 400,
  INVALID_QUOTE: 400,
  QUOTE_EXPIRED: 400,
  QUOTE_BODY_MISMATCH: 400,
  FEEDBACK_CHALLENGE_INVALID: 400,
  FEEDBACK_CHALLENGE_EXPIRED: 400,
  FEEDBACK_PAYLOAD_MISMATCH: 400,
  FEEDBACK_SIGNATURE_INVALID: 401,
  UNAUTHORIZED: 401,
  PAYMENT_REQUIRED: 402,
  NOT_FOUND: 404,
  PAYMENT_IDENTIFIER_CONFLICT: 409,
  PAYMENT_REPLAY_PENDING: 409,
  PAYMENT_OUTCOME_UNKNOWN: 409,
  PREPAID_NONCE_REPLAYED: 409,
  FEEDBACK_CHALLENGE_REPLAYED: 409,
  JOB_NOT_READY: 409,
  AUDIO_NOT_STORED: 410,
  TEXT_TOO_LONG: 413,
  REQUEST_TOO_LARGE: 413,
  UNSUPPORTED_CONTENT_TYPE: 415,
  RATE_LIMITED: 429,
  FEEDBACK_RATE_LIMITED: 429,
  INTERNAL_ERROR: 500,
  TTS_UPSTREAM_ERROR: 502,
  PAYMENT_ERROR: 502,
  CONFIG_ERROR: 503,
  TTS_PROVIDER_NOT_CONFIGURED: 503,
  TTS_UNAVAILABLE: 503,
  REPLAY_CACHE_UNAVAILABLE: 503,
} as const satisfies Record<ErrorCode, number>;

/** The one shape of all errors (R72). */
export interface ErrorBody<Code extends ErrorCode = ErrorCode> {
  error: { code: Code; message: string; details: ErrorDetails };
}

export type Failure<Code extends ErrorCode> = Code extends ErrorCode
  ? { status: (typeof statusOf)[Code]; type: 'application/json'; body: ErrorBody<Code> }
  : never;

/** Thrown by hooks: the error handler answers with the failure. */
export class RequestRefused extends Error {
  readonly failure: Failure<ErrorCode> & { readonly headers?: Readonly<Record<string, string | number>> };

  constructor(refusal: RequestRefused['failure']) {
    super(refusal.body.error.message);
    this.failure = refusal;
  }
}

export const errorBody = <Code extends ErrorCode>(
  code: Code,
  message: string,
  details: ErrorDetails = null,
): ErrorBody<Code> => ({ error: { code, message, details } });

export const failure = <Code extends ErrorCode>(
  code: Code,
  message: string,
  details: ErrorDetails = null,
): Failure<Code> =>
  ({ status: statusOf[code], type: 'application/json', body: errorBody(code, message, details) }) as Failure<Code>;

/** Whether a step of an operation ended with the answer to the request. */
export const isAnswer = <Step extends object>(step: Step): step is Extract<Step, { readonly status: number }> =>
  'status' in step;
