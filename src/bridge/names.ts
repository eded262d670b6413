import type { TtsModel, TtsModelsResponse } from '../contract/types.ts';
import { invalid } from './api-error.ts';

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
 * that of the id or the slug, else the fallback, else for one of OpenAI's names always the same of the model's voices.
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

/** The model that is spoken with where a program gives this name. */
export const modelFor = (catalog: TtsModelsResponse, name: string | undefined, { model }: Fallbacks): TtsModel =>
  findModel(catalog, name) ?? findModel(catalog, model) ?? (findModel(catalog, catalog.defaultModel) as TtsModel);

/** By its id, or by what follows the provider in it, as OpenAI's models are named. */
export const findModel = ({ models }: TtsModelsResponse, name: string | undefined): TtsModel | undefined =>
  models.find(({ id }) => id === name) ?? models.find(({ id }) => id.slice(id.indexOf('/') + 1) === name);

function voiceOf(model: TtsModel, name: string | undefined, fallback: string | undefined): string {
  const find = (wanted: string | undefined) =>
    model.voices.find(({ id }) => id === wanted) ?? model.voices.find(({ voice }) => voice === wanted);
  const found = find(name) ?? find(fallback);
  if (found) return found.id;
  if (name === undefined) return model.defaultVoice;
  const known = KNOWN_VOICES.indexOf(name);
  const standIn = known < 0 ? undefined : model.voices[known % model.voices.length];
  if (standIn) return standIn.id;
  throw invalid(
    'voice',
    `${model.id} has no voice of that name. It has ${model.voices.map(({ id }) => id).join(', ')}.`,
  );
}
