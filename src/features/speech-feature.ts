import { addWaitingAudioGauge } from '../admin/gauges.ts';
import type { BufferedSpeech } from '../payments/buffered-delivery.ts';
import { StreamDeadlines } from '../payments/stream-deadlines.ts';
import type { Streaming } from '../payments/streamed-delivery.ts';
import { AudioMemory } from '../speech/audio-memory.ts';
import { openProvider } from '../speech/open-provider.ts';
import type { SpeechProvider } from '../speech/provider.ts';
import { SpeechAdmission } from '../speech/speech-admission.ts';
import type { Feature, SharedParts } from './feature.ts';

/** The provider, and what decides how much is asked of it. */
export interface Speaking extends BufferedSpeech {
  readonly provider: SpeechProvider;
  readonly streaming: Streaming;
}

export interface Speech extends Feature {
  /** Undefined while no provider is set. */
  readonly speaking: Speaking | undefined;
}

/** The speech provider. */
export async function openSpeech({ config, inProgress, metrics, log }: SharedParts): Promise<Speech> {
  if (!config.speech) {
    log.warn('no speech provider: SPEECH_BASE_URL is unset, speech answers 503');
    return { speaking: undefined, reconcilers: [] };
  }
  const { timeoutMs, streaming } = config.speech;
  const provider = await openProvider(config.speech, config.catalog, { metrics, log });
  const memory = new AudioMemory(streaming.waitingBytes);
  const admission = new SpeechAdmission(provider, memory);
  const deadlines = new StreamDeadlines({ silenceMs: timeoutMs, totalMs: streaming.totalMs });
  addWaitingAudioGauge(metrics, memory);
  return {
    speaking: {
      ...{ provider, timeoutMs, admission, inProgress },
      streaming: { admission, deadlines, memory, inProgress },
    },
    reconcilers: [],
    stop: () => deadlines.stop(),
    close: () => provider.close(),
  };
}
