import type { Speechgate } from '../client/index.ts';

/** Milliseconds for which the catalog is taken as it was read. */
const KEPT_MS = 60_000;

type Models = Awaited<ReturnType<Speechgate['models']>>;

/** The service's models; programs ask for them more often than they change. */
export class Catalog {
  readonly #client: Pick<Speechgate, 'models'>;
  #kept: { readonly until: number; readonly models: Promise<Models> } | undefined;

  constructor(client: Pick<Speechgate, 'models'>) {
    this.#client = client;
  }

  /** Has it read again. */
  forget(): void {
    this.#kept = undefined;
  }

  /** @throws SpeechgateError when the service can't be asked */
  async read(): Promise<Models> {
    if (!this.#kept || this.#kept.until < performance.now()) {
      this.#kept = { until: performance.now() + KEPT_MS, models: this.#client.models() };
    }
    try {
      return await this.#kept.models;
    } catch (error) {
      this.#kept = undefined;
      throw error;
    }
  }
}
