import type { TtsModel, TtsModelsResponse } from '../../contract/types.ts';
import { serviceNames } from '../../lib/service-words.ts';
import { plainCatalog } from '../../speech/plain-catalog.ts';
import type { Speechgate } from '../client/index.ts';
import { invalid, lasting } from './api-error.ts';

/** Used when a program's model or voice is not in the catalog: ids, or slugs without the provider. */
export interface Fallbacks {
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
}

/** OpenAI's voices. The position selects the voice of a model that lacks the name. */
const KNOWN_VOICES = 'alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse'.split(' ');
const CACHE_MS = 60_000;

export class Catalog {
  readonly #client: Pick<Speechgate, 'models'>;
  #cached: { readonly until: number; readonly models: Promise<TtsModelsResponse> } | undefined;

  constructor(client: Pick<Speechgate, 'models'>) {
    this.#client = client;
  }

  forget(): void {
    this.#cached = undefined;
  }

  async read(): Promise<TtsModelsResponse> {
    if (!this.#cached || this.#cached.until < performance.now()) {
      this.#cached = { until: performance.now() + CACHE_MS, models: this.#client.models().then(plainCatalog) };
    }
    try {
      return await this.#cached.models;
    } catch (error) {
      this.#cached = undefined;
      throw error;
    }
  }
}

/**
 * Finds the model by id, slug, fallback or the catalog's default. Finds the voice by id or slug, an OpenAI name also by
 * its ending, then the fallback, and for an OpenAI name a fixed voice. Ignores case, and `_` equals `-`.
 * @throws ApiError if no voice matches, or the model is unavailable
 */
export function resolve(
  catalog: TtsModelsResponse,
  requested: { readonly model: string | undefined; readonly voice: string | undefined },
  fallbacks: Fallbacks,
): { readonly model: TtsModel; readonly voice: string } {
  const model = modelFor(catalog, requested.model, fallbacks);
  if (!model.available)
    throw invalid(
      'model',
      `model ${model.id} is unavailable. Choose another model or retry later. Nothing was bought.`,
      'model_not_available',
    );
  return { model, voice: voiceOf(model, requested.voice, fallbacks.voice) };
}

export function modelFor(catalog: TtsModelsResponse, name: string | undefined, { model }: Fallbacks): TtsModel {
  const found = findModel(catalog, name) ?? findModel(catalog, model) ?? findModel(catalog, catalog.defaultModel);
  if (found) return found;
  throw lasting(
    'no_model',
    'model does not exist, and the service has no default model. Send a model of GET /v1/models. Nothing was bought.',
    {},
    'model',
  );
}

/** By id, or by the part after the provider. */
export const findModel = ({ models }: TtsModelsResponse, name: string | undefined): TtsModel | undefined =>
  findNamed(models, name, ({ id }) => modelSlug(id));

export const modelSlug = (id: string): string => id.slice(id.indexOf('/') + 1);

/** By id, or by the part after the provider. */
export const findVoice = ({ voices }: TtsModel, name: string | undefined): TtsModel['voices'][number] | undefined =>
  findNamed(voices, name, ({ voice }) => voice);

function findNamed<Item extends { readonly id: string }>(
  items: readonly Item[],
  name: string | undefined,
  slugOf: (item: Item) => string,
): Item | undefined {
  if (name === undefined) return undefined;
  for (const normalize of [(text: string) => text, plain]) {
    const found =
      items.find(({ id }) => normalize(id) === normalize(name)) ??
      items.find((item) => normalize(slugOf(item)) === normalize(name));
    if (found) return found;
  }
  return undefined;
}

const plain = (name: string): string => name.toLowerCase().replaceAll('_', '-');

function voiceOf(model: TtsModel, name: string | undefined, fallback: string | undefined): string {
  const { id, voices, defaultVoice } = model;
  const known = name === undefined ? -1 : KNOWN_VOICES.indexOf(name.toLowerCase());
  const ending = known < 0 ? undefined : voices.find(({ voice }) => plain(voice).endsWith(`-${KNOWN_VOICES[known]}`));
  const substitute = known < 0 ? undefined : voices[known % voices.length];
  const found = findVoice(model, name) ?? ending ?? findVoice(model, fallback) ?? substitute;
  if (found) return found.id;
  if (name === undefined) return defaultVoice;
  throw invalid(
    'voice',
    `voice does not exist for the model ${id}. Send one of ${serviceNames(voices.map((each) => each.id))}. Nothing was bought.`,
  );
}
