/** A response in the format of Stripe's errors (https://docs.stripe.com/api/errors). */
export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    readonly status: number,
    message: string,
    readonly about: { readonly code?: string; readonly param?: string } = {},
    readonly type: 'invalid_request_error' | 'idempotency_error' | 'api_error' = 'invalid_request_error',
  ) {
    super(message);
  }

  toJSON() {
    return { error: { type: this.type, ...this.about, message: this.message } };
  }
}

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const status = error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : 500;
  if (status >= 400 && status < 500)
    return new ApiError(status, 'The request is malformed. Correct it. Nothing was changed.');
  return new ApiError(500, 'The local checkout failed. Try again. No real money moves here.', {}, 'api_error');
}
