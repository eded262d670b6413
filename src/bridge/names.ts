import type { TtsModel, TtsModelsResponse } from '../contract/types.ts';
import { serviceNames } from '../lib/service-words.ts';
import { ApiError, invalid, NO_RETRY } from './api-error.ts';

/** What is spoken where a program names nothing of the catalog: ids, or slugs without the provider. */
export interface Fallbacks {
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
}

/** What stands for the names that a program gave. */
export interface Named {
  readonly model: TtsModel;
  /** Its id. */
  readonly voice: string;
}

/** OpenAI's voices, in the order in which a model's voices are given to those that it has not. */
const KNOWN_VOICES = [
  'alloy',
  'ash',
  'ballad',
  'cedar',
  'coral',
  'echo',
  'fable',
  'marin',
  'nova',
  'onyx',
  'sage',
  'shimmer',
  'verse',
];

/**
 * The model: that of the id, else the first whose slug is the name, else the fallback, else the catalog's default. The voice:
 * that of the id or the slug; for one of OpenAI's names the first that ends in it; else the fallback; else for one of
 * OpenAI's names always the same of the model's voices. Case does not matter, and `_` is the same as `-`.
 * @throws ApiError where no voice stands for the name, or the model can't be had
 */
export function resolve(
  catalog: TtsModelsResponse,
  asked: { readonly model: string | undefined; readonly voice: string | undefined },
  fallbacks: Fallbacks,
): Named {
  const model = modelFor(catalog, asked.model, fallbacks);
  if (!model.available) throw invalid('model', `The model ${model.id} is not available.`, 'model_not_available');
  return { model, voice: voiceOf(model, asked.voice, fallbacks.voice) };
}

/** The model that is spoken with where a program gives this name. @throws ApiError */
export function modelFor(catalog: TtsModelsResponse, name: string | undefined, { model }: Fallbacks): TtsModel {
  const found = findModel(catalog, name) ?? findModel(catalog, model) ?? findModel(catalog, catalog.defaultModel);
  if (found) return found;
  throw new ApiError(
    { status: 502, type: 'server_error', code: 'no_model', param: 'model' },
    "The service lists no such model, and its default model can't be used. Nothing was bought.",
    NO_RETRY,
  );
}

/** By its id, or by what follows the provider in it, as OpenAI's models are named. */
export const findModel = ({ models }: TtsModelsResponse, name: string | undefined): TtsModel | undefined =>
  findNamed(models, name, (model) => model.id.slice(model.id.indexOf('/') + 1));

/** By its id, or else by its slug: as they are written, or else in any case and with `_` for `-`. */
function findNamed<Item extends { readonly id: string }>(
  items: readonly Item[],
  name: string | undefined,
  slugOf: (item: Item) => string,
): Item | undefined {
  if (name === undefined) return undefined;
  for (const as of [(text: string) => text, plain]) {
    const found = items.find(({ id }) => as(id) === as(name)) ?? items.find((item) => as(slugOf(item)) === as(name));
    if (found) return found;
  }
  return undefined;
}

const plain = (name: string): string => name.toLowerCase().replaceAll('_', '-');

function voiceOf(
  { id, voices, defaultVoice }: TtsModel,
  name: string | undefined,
  fallback: string | undefined,
): string {
  const find = (wanted: string | undefined) => findNamed(voices, wanted, ({ voice }) => voice);
  const known = name === undefined ? -1 : KNOWN_VOICES.indexOf(name.toLowerCase());
  const ending = known < 0 ? undefined : voices.find(({ voice }) => plain(voice).endsWith(`-${KNOWN_VOICES[known]}`));
  const standIn = known < 0 ? undefined : voices[known % voices.length];
  const found = find(name) ?? ending ?? find(fallback) ?? standIn;
  if (found) return found.id;
  if (name === undefined) return defaultVoice;
  throw invalid(
    'voice',
    `${id} has no voice of that name. It has ${serviceNames(voices.map((each) => each.id))}. Nothing was bought.`,
  );
}
