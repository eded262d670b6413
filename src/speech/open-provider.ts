import type { SpeechConfig } from '../settings/speech.ts';
import type { SpeechProvider } from './provider.ts';

/** The part of a synthesis' time that a text may wait for its turn. */
const WAITING_SHARE = 1 / 3;

/** The provider that the configuration names. The embedded voice is loaded only where it is asked for. */
export async function openProvider({ baseUrl, apiKey, timeoutMs }: SpeechConfig): Promise<SpeechProvider> {
  if (baseUrl === 'embedded:') {
    const { embeddedVoice } = await import('./embedded/index.ts');
    return embeddedVoice({ maxWaitMs: timeoutMs * WAITING_SHARE });
  }
  const { openAiCompatible } = await import('./openai-compatible.ts');
  return openAiCompatible({ baseUrl, ...(apiKey !== undefined && { apiKey }) });
}
