import type { Metrics, SynthesisOutcome } from '../observability/metrics.ts';
import { type Place, SpeechError, type SpeechProvider, type Synthesizer } from './provider.ts';

/** The same provider, with its latency and its outcomes measured. */
export function measuredProvider(provider: SpeechProvider, metrics: Metrics): SpeechProvider {
  const measured = (synthesizer: Synthesizer): Synthesizer['synthesize'] => {
    return async (utterance, signal) => {
      const startedAt = performance.now();
      const seconds = () => (performance.now() - startedAt) / 1000;
      const ended = (outcome: SynthesisOutcome) => metrics.upstreamEnded(outcome, seconds());
      try {
        const { mimeType, audio } = await synthesizer.synthesize(utterance, signal);
        metrics.upstreamAnswered(seconds());
        return { mimeType, audio: tellEnd(audio, ended) };
      } catch (error) {
        ended(outcomeOf(error));
        throw error;
      }
    };
  };
  const measuredPlace = (place: Place): Place => ({ synthesize: measured(place), release: () => place.release() });
  return {
    synthesize: measured(provider),
    refuse: (utterance) => provider.refuse?.(utterance),
    ...(provider.reserve && {
      reserve: (utterance) => {
        const place = provider.reserve?.(utterance) as Place | SpeechError;
        return place instanceof SpeechError ? place : measuredPlace(place);
      },
    }),
    close: () => provider.close(),
  };
}

async function* tellEnd(audio: AsyncIterable<Uint8Array>, ended: (outcome: SynthesisOutcome) => void) {
  let outcome: SynthesisOutcome = 'abandoned';
  try {
    yield* audio;
    outcome = 'ok';
  } catch (error) {
    outcome = outcomeOf(error);
    throw error;
  } finally {
    ended(outcome);
  }
}

const outcomeOf = (error: unknown): SynthesisOutcome => (error instanceof SpeechError ? error.code : 'error');
