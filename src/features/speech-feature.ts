import { addWaitingAudioGauge } from '../http/admin/gauges.ts';
import { StreamDeadlines } from '../payments/delivery.ts';
import { openProvider } from '../speech/open-provider.ts';
import { AudioMemory, SynthesisPermits } from '../speech/synthesis-permits.ts';
import type { SharedParts } from './feature.ts';

export type Speech = ReturnType<typeof openSpeech>;

/** Opens the provider and its limits. `speaking` is undefined without a provider. */
export function openSpeech({ config, metrics, log }: SharedParts) {
  if (!config.speech) {
    log.warn(
      'speech is off and answers 503, because SPEECH_BASE_URL is not set. Set it to the URL of your speech server',
    );
    return { speaking: undefined, reconcilers: [] };
  }
  const { timeoutMs, streaming, concurrency } = config.speech;
  const { provider, close } = openProvider(config.speech, config.catalog, { metrics, log });
  const memory = new AudioMemory(streaming.waitingBytes);
  const permits = new SynthesisPermits(concurrency, memory, metrics.shed);
  const deadlines = new StreamDeadlines({ silenceMs: timeoutMs, totalMs: streaming.totalMs });
  addWaitingAudioGauge(metrics, memory);
  return {
    speaking: { provider, timeoutMs, permits, deadlines, memory },
    reconcilers: [],
    stop: () => deadlines.stop(),
    close,
  };
}
