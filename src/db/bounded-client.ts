import pg from 'pg';

/** What pg says when `query_timeout` has passed. */
const NO_ANSWER = 'Query read timeout';

type Submit = (...call: unknown[]) => unknown;

/**
 * A client that gives its connection up when a statement had no answer in time. pg itself would keep it, and a pool hand
 * it out again: when the server's machine has died without a farewell, that goes on until the kernel gives up, which
 * takes a quarter of an hour.
 */
export class BoundedClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    // A connection that breaks fails its statement and leaves the pool; without a listener it would end the process.
    this.on('error', () => {});
  }

  // @ts-expect-error pg overloads query; each way of calling it is passed on as it is.
  override query(...call: unknown[]): unknown {
    const callback = call.at(-1);
    if (typeof callback === 'function') {
      return this.#submit(...call.slice(0, -1), (error: Error | null, ...rest: unknown[]) => {
        this.giveUpAfter(error);
        callback(error, ...rest);
      });
    }
    const result = this.#submit(...call);
    if (!(result instanceof Promise)) return result;
    return result.catch((error: Error) => {
      this.giveUpAfter(error);
      throw error;
    });
  }

  #submit(...call: unknown[]): unknown {
    return (super.query as Submit)(...call);
  }

  /** Ends the connection after an error that says that there was no answer. */
  protected giveUpAfter(error: Error | null): void {
    if (error?.message === NO_ANSWER) void this.end();
  }
}
