import pg from 'pg';
import { BoundedClient } from './bounded-client.ts';

/** A client whose statements are all prepared once per connection and then called by name. */
export class PreparingClient extends BoundedClient {
  static readonly #names = new Map<string, string>();

  override query(text: string | pg.QueryConfig, values?: unknown[], ...rest: unknown[]) {
    if (typeof text !== 'string' || !values?.length) return super.query(text, values, ...rest);
    let name = PreparingClient.#names.get(text);
    if (name === undefined) {
      name = `q${PreparingClient.#names.size}`;
      PreparingClient.#names.set(text, name);
    }
    return this.#call(name, text, values);
  }

  /** Like the client's own call with a config object, which copies that property by property. */
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
      // Else it would tell of the socket that it came from.
      Error.captureStackTrace(error);
      throw error;
    });
  }
}
