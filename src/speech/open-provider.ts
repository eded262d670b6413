import type { SpeechProvider } from './provider.ts';

export interface ProviderSettings {
  /** `embedded:` or the base of an OpenAI-compatible API. */
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** Longest synthesis that is collected before it is paid. */
  readonly timeoutMs: number;
}

/** The part of a synthesis' time that a text may wait for its turn. */
const WAITING_SHARE = 1 / 3;

/** The provider that the configuration names. The embedded voice is loaded only where it is asked for. */
export async function openProvider({ baseUrl, apiKey, timeoutMs }: ProviderSettings): Promise<SpeechProvider> {
  if (baseUrl === 'embedded:') {
    const { embeddedVoice } = await import('./embedded/index.ts');
    return embeddedVoice({ maxWaitMs: timeoutMs * WAITING_SHARE });
  }
  const { openAiCompatible } = await import('./openai-compatible.ts');
  return openAiCompatible({ baseUrl, ...(apiKey !== undefined && { apiKey }) });
}
