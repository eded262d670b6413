import pg from 'pg';

const NO_ANSWER = 'Query read timeout';

type Submit = (...call: unknown[]) => unknown;

/**
 * Closes its connection after a query timeout. pg would return it to the pool. If the server's machine has died, each
 * later use would time out too. The kernel gives up only after 15 minutes.
 */
export class BoundedClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    // Without a listener, a broken connection ends the process. Its statement fails anyway, and it leaves the pool.
    this.on('error', () => {});
  }

  // @ts-expect-error pg overloads query; every form of call is passed on unchanged.
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

  protected giveUpAfter(error: Error | null): void {
    if (error?.message === NO_ANSWER) void this.end();
  }
}

/** Prepares statements with parameters, each under a name that logs and traces show. */
export class PreparingClient extends BoundedClient {
  static readonly #names = new Map<string, string>();
  static readonly #texts = new Map<string, number>();

  override query(text: string | pg.QueryConfig, values?: unknown[], ...rest: unknown[]) {
    if (typeof text !== 'string' || !values?.length) return super.query(text, values, ...rest);
    let name = PreparingClient.#names.get(text);
    if (name === undefined) {
      name = PreparingClient.#newName(text);
      PreparingClient.#names.set(text, name);
    }
    return this.#call(name, text, values);
  }

  /** As the statement names itself (`statementName`), or by its first table. Different texts get different names. */
  static #newName(text: string): string {
    const [, own] = /\/\* (\w+) \*\//.exec(text) ?? [];
    const [, verb = 'from', table] = /\b(insert into|update|delete from|from) "?(\w+)/.exec(text) ?? [];
    const name = own ?? `${verb.replace(/^from/, 'select').split(' ')[0]}_${table}`;
    const count = (PreparingClient.#texts.get(name) ?? 0) + 1;
    PreparingClient.#texts.set(name, count);
    return count === 1 ? name : `${name}_${count}`;
  }

  #call(name: string, text: string, values: unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const query = new pg.Query(text, values);
      Object.assign(query, {
        name,
        callback: (error: Error | null, result: unknown) => {
          this.giveUpAfter(error);
          if (error) reject(error);
          else resolve(result);
        },
      });
      super.query(query);
    }).catch((error: Error) => {
      // Otherwise the stack shows the socket instead of the caller.
      Error.captureStackTrace(error);
      throw Object.assign(error, { statement: name });
    });
  }
}
