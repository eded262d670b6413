import type { TtsModelsResponse } from '../contract/types.ts';
import { isServiceId, serviceId, serviceWords } from '../lib/service-words.ts';

const LONGEST_NAME = 80;

/** A service's catalog without models and voices whose ids can't be sent, and with short names on one line. */
export function plainCatalog(catalog: TtsModelsResponse): TtsModelsResponse {
  const plain = catalog.models.filter(
    ({ id, defaultVoice, speed }) =>
      isServiceId(id) && isServiceId(defaultVoice) && Number.isFinite(speed?.min) && Number.isFinite(speed?.max),
  );
  return {
    ...catalog,
    defaultModel: serviceId(catalog.defaultModel),
    models: plain.map((model) => ({
      ...model,
      name: nameOf(model.name),
      provider: nameOf(String(model.provider)),
      description: serviceWords(model.description),
      voices: model.voices
        .filter(({ id, voice }) => isServiceId(id) && isServiceId(voice))
        .map((voice) => ({ ...voice, name: nameOf(voice.name) })),
    })),
  };
}

const nameOf = (text: string): string => [...serviceWords(text)].slice(0, LONGEST_NAME).join('');
