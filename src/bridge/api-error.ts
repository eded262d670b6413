/** What a program is told instead of what it asked for, in OpenAI's shape. */
export class ApiError extends Error {
  readonly status: number;
  readonly type: ErrorType;
  /** For programs; null where OpenAI has none either. */
  readonly code: string | null;
  /** The field of the request that is wrong. */
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    kind: { readonly status: number; readonly type: ErrorType; readonly code?: string; readonly param?: string },
    message: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.status = kind.status;
    this.type = kind.type;
    this.code = kind.code ?? null;
    this.param = kind.param ?? null;
    this.headers = headers;
  }

  /** The body of the answer. */
  get body(): object {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

type ErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'insufficient_quota'
  | 'rate_limit_error'
  | 'server_error';

/** 400: the program has to ask for something else. */
export const invalid = (param: string | null, message: string, code = 'invalid_value'): ApiError =>
  new ApiError({ status: 400, type: 'invalid_request_error', code, ...(param !== null && { param }) }, message);

/** Tells OpenAI's clients not to ask again by themselves, which they would after a 409, 429 or 5xx. */
export const NO_RETRY = { 'x-should-retry': 'false' };
