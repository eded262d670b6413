import type { TtsModelsResponse } from '../contract/types.ts';
import type { Api, Wire } from './api.ts';
import { picoUsd } from './price.ts';
import { read } from './reading.ts';
import { unknownModel } from './service-error.ts';
import type { Shape } from './shape.ts';

/** Milliseconds for which the catalog is taken as it was read. */
const KEPT_MS = 60_000;

const VOICE: Shape = { id: 'string', voice: 'string', name: 'string' };
export const VOICES: Shape = { model: 'string', voices: [VOICE] };
const MODEL: Shape = {
  id: 'string',
  name: 'string',
  description: 'string',
  maxInputCharacters: 'number',
  defaultVoice: 'string',
  pricing: { ratePerCharUsd: 'number', ratePerMillionCharsUsd: 'number' },
  voices: [VOICE],
  available: 'boolean',
};
const MODELS: Shape = { defaultModel: 'string', models: [MODEL] };

/** The models, as the service lists them. Nothing vouches for them. */
export class Catalog {
  readonly #api: Api;
  #kept: { readonly at: number; readonly models: Wire<TtsModelsResponse> } | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  async read(signal?: AbortSignal): Promise<Wire<TtsModelsResponse>> {
    const models = await read(signal, MODELS, (signal) => this.#api.GET('/tts/models', { signal }));
    this.#kept = { at: Date.now(), models };
    return models;
  }

  /** The model of an order, the default one where it names none. */
  async modelOf(order: { readonly model?: string }, signal?: AbortSignal): Promise<string> {
    return order.model ?? (await this.#recent(signal)).defaultModel;
  }

  /** In 10^-12 USD per character. @throws InvalidRequestError when there is no such model */
  async rateOf(model: string, signal?: AbortSignal): Promise<bigint> {
    const found = (await this.#recent(signal)).models.find(({ id }) => id === model);
    if (!found) throw unknownModel(model);
    return picoUsd(found.pricing.ratePerCharUsd.toFixed(12));
  }

  async #recent(signal?: AbortSignal): Promise<Wire<TtsModelsResponse>> {
    const age = this.#kept ? Date.now() - this.#kept.at : Number.POSITIVE_INFINITY;
    return this.#kept && age >= 0 && age < KEPT_MS ? this.#kept.models : this.read(signal);
  }
}
