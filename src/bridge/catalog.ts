import type { Speechgate } from '../client/index.ts';
import type { TtsModelsResponse } from '../contract/types.ts';
import { plainCatalog } from '../speech/plain-catalog.ts';

/** Milliseconds for which the catalog is taken as it was read. */
const KEPT_MS = 60_000;

/** The service's models; programs ask for them more often than they change. */
export class Catalog {
  readonly #client: Pick<Speechgate, 'models'>;
  #kept: { readonly until: number; readonly models: Promise<TtsModelsResponse> } | undefined;

  constructor(client: Pick<Speechgate, 'models'>) {
    this.#client = client;
  }

  /** Has it read again. */
  forget(): void {
    this.#kept = undefined;
  }

  /** @throws SpeechgateError when the service can't be asked */
  async read(): Promise<TtsModelsResponse> {
    if (!this.#kept || this.#kept.until < performance.now()) {
      this.#kept = { until: performance.now() + KEPT_MS, models: this.#client.models().then(plainCatalog) };
    }
    try {
      return await this.#kept.models;
    } catch (error) {
      this.#kept = undefined;
      throw error;
    }
  }
}
