import type { TtsModel, TtsModelsResponse } from '../contract/types.ts';
import { ApiError } from './api-error.ts';
import { findModel } from './names.ts';

/** `GET /v1/models`, in OpenAI's shape. */
export const listModels = ({ models }: TtsModelsResponse): object => ({ object: 'list', data: models.map(toModel) });

/** `GET /v1/models/{id}`. @throws ApiError */
export function showModel(catalog: TtsModelsResponse, id: string): object {
  const model = findModel(catalog, id);
  if (model) return toModel(model);
  throw new ApiError(
    { status: 404, type: 'invalid_request_error', code: 'model_not_found', param: 'model' },
    'The service has no model of that name.',
  );
}

/** `GET /v1/audio/models`, which programs ask that let their users choose one. */
export const listSpeechModels = ({ models }: TtsModelsResponse): object => ({
  models: models.map(({ id, name }) => ({ id, name })),
});

/** `GET /v1/audio/voices`: those of a model. */
export const listVoices = ({ voices }: TtsModel): object => ({
  voices: voices.map(({ id, voice, name }) => ({ id, name, voice })),
});

/** The catalog does not know when a model was made. */
const toModel = ({ id, provider }: TtsModel): object => ({ id, object: 'model', created: 0, owned_by: provider });
