export type ApiErrorType = 'invalid_request_error' | 'idempotency_error' | 'api_error';

/** An answer in the form of Stripe's errors (https://docs.stripe.com/api/errors). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly type: ApiErrorType,
    message: string,
    /** Stripe's name of the fault, and the parameter that it is about, in the form's own notation. */
    readonly about: { readonly code?: string; readonly param?: string } = {},
  ) {
    super(message);
    this.name = 'ApiError';
  }

  /** The body of the answer. */
  toJSON() {
    return { error: { type: this.type, ...this.about, message: this.message } };
  }
}

/** A parameter that breaks a rule: 400. */
export function invalidParameter(param: string, code: string, message: string): ApiError {
  return new ApiError(400, 'invalid_request_error', message, { code, param });
}
