import type { Metrics, SynthesisOutcome } from '../observability/metrics.ts';
import { type Place, SpeechError, type SpeechProvider, type Synthesizer } from './provider.ts';

/** The same provider, with its latency and its outcomes measured. */
export function measuredProvider(provider: SpeechProvider, metrics: Metrics): SpeechProvider {
  const measured = (synthesizer: Synthesizer): Synthesizer['synthesize'] => {
    return async (utterance, signal) => {
      const startedAt = performance.now();
      try {
        const { mimeType, audio } = await synthesizer.synthesize(utterance, signal);
        metrics.upstreamAnswered(secondsSince(startedAt));
        return { mimeType, audio: tellEnd(audio, metrics, startedAt) };
      } catch (error) {
        metrics.upstreamEnded(outcomeOf(error), secondsSince(startedAt));
        throw error;
      }
    };
  };
  const measuredPlace = (place: Place): Place => ({
    synthesize: measured(place),
    release() {
      place.release();
    },
  });
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

async function* tellEnd(audio: AsyncIterable<Uint8Array>, metrics: Metrics, startedAt: number) {
  let outcome: SynthesisOutcome = 'abandoned';
  try {
    yield* audio;
    outcome = 'ok';
  } catch (error) {
    outcome = outcomeOf(error);
    throw error;
  } finally {
    metrics.upstreamEnded(outcome, secondsSince(startedAt));
  }
}

const secondsSince = (startedAt: number): number => (performance.now() - startedAt) / 1000;

const outcomeOf = (error: unknown): SynthesisOutcome => (error instanceof SpeechError ? error.code : 'error');
