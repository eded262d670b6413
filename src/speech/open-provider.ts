import type { SpeechConfig } from '../config.ts';
import type { SpeechProvider } from './provider.ts';

/** The provider that the configuration names. The embedded voice is loaded only where it is asked for. */
export async function openProvider({ baseUrl, apiKey }: SpeechConfig): Promise<SpeechProvider> {
  if (baseUrl === 'embedded:') {
    const { embeddedVoice } = await import('./embedded/index.ts');
    return embeddedVoice();
  }
  const { openAiCompatible } = await import('./openai-compatible.ts');
  return openAiCompatible({ baseUrl, ...(apiKey !== undefined && { apiKey }) });
}
