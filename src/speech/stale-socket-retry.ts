import { Client, type Dispatcher } from 'undici';

/** What a socket reports when the peer has closed or reset it. */
const SOCKET_DIED = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'ECONNABORTED', 'EPIPE']);

/**
 * A connection whose requests survive the keep-alive race: when a *reused* socket dies before the first byte of a
 * response, its server most likely closed it as idle while the request was under way, so the request is sent once more,
 * on a fresh socket (RFC 9112, 9.3.1). A fresh socket that dies is the server's fault and is not retried.
 *
 * Only for requests that may be executed twice and whose body is a string or a buffer.
 */
export class StaleSocketRetryClient extends Client {
  /** True when the current socket has carried a request. */
  isUsed = false;

  constructor(origin: string | URL, options: object) {
    super(origin, options);
    this.on('connect', () => {
      this.isUsed = false;
    });
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    return super.dispatch(options, new RetryHandler(this, options, handler));
  }
}

/**
 * Passes everything on, and repeats the request on the connection that lost its socket and therefore opens a fresh one.
 * That one is not used yet, so there is no second repetition. The class speaks undici's original handler interface, the one that connections use inside, as only
 * that one tells of the first byte of a response.
 */
class RetryHandler implements Dispatcher.DispatchHandler {
  #mayRetry = false;
  #hasResponse = false;
  readonly #client: StaleSocketRetryClient;
  readonly #options: Dispatcher.DispatchOptions;
  readonly #handler: Dispatcher.DispatchHandler;

  constructor(
    client: StaleSocketRetryClient,
    options: Dispatcher.DispatchOptions,
    handler: Dispatcher.DispatchHandler,
  ) {
    this.#client = client;
    this.#options = options;
    this.#handler = handler;
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#mayRetry = this.#client.isUsed;
    this.#client.isUsed = true;
    this.#handler.onConnect?.(abort);
  }

  onResponseStarted(): void {
    this.#hasResponse = true;
    this.#handler.onResponseStarted?.();
  }

  onHeaders(status: number, headers: Buffer[], resume: () => void, statusText: string): boolean {
    return this.#handler.onHeaders?.(status, headers, resume, statusText) ?? true;
  }

  onData(chunk: Buffer): boolean {
    return this.#handler.onData?.(chunk) ?? true;
  }

  onComplete(trailers: string[] | null): void {
    this.#handler.onComplete?.(trailers);
  }

  onError(error: Error): void {
    const isStale =
      this.#mayRetry && !this.#hasResponse && SOCKET_DIED.has((error as NodeJS.ErrnoException).code ?? '');
    if (isStale) this.#client.dispatch(this.#options, this.#handler);
    else this.#handler.onError?.(error);
  }
}
