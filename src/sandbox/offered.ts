import type { TtsModelsResponse } from '../contract/types.ts';

/** What the demo and the printed commands ask for, of the catalog in force. */
export interface Offered {
  /** The default model's default voice, and another one of it; the same where it has only one. */
  readonly voice: string;
  readonly otherVoice: string;
  /** A model that is not the default one; that one where there is no other. */
  readonly otherModel: string;
}

/** Asks a running sandbox what it offers. */
export async function readOffered(baseUrl: string): Promise<Offered> {
  const { models, defaultModel } = (await (await fetch(`${baseUrl}/tts/models`)).json()) as TtsModelsResponse;
  const { defaultVoice, voices } = models.find(({ id }) => id === defaultModel) as (typeof models)[number];
  const others = models.filter(({ id, available }) => available && id !== defaultModel);
  return {
    voice: defaultVoice,
    otherVoice: voices.findLast(({ id }) => id !== defaultVoice)?.id ?? defaultVoice,
    otherModel: others[0]?.id ?? defaultModel,
  };
}
