import { type Place, SpeechError, type SpeechProvider, type Synthesizer } from './provider.ts';

/** How a synthesis ended: that its audio was heard to the end, or left before, or its error. */
export type SynthesisEnd = { readonly outcome: 'ok' } | { readonly outcome: 'abandoned' } | FailedSynthesis;

export interface FailedSynthesis {
  readonly outcome: 'failed';
  readonly error: unknown;
  /** The deadline of the synthesis has fired. */
  readonly isLate: boolean;
}

/** What is told of each synthesis of a provider, with the seconds since its beginning. */
export interface SynthesisWatch {
  begun(): void;
  /** Its first audio is there. */
  answered(seconds: number): void;
  ended(end: SynthesisEnd, seconds: number): void;
}

/** The same provider, with what becomes of each synthesis told. Audio that nobody begins to hear has no end. */
export function measuredProvider(provider: SpeechProvider, watch: SynthesisWatch): SpeechProvider {
  const measured = (synthesizer: Synthesizer): Synthesizer['synthesize'] => {
    return async (utterance, signal, firstByteMs) => {
      const startedAt = performance.now();
      watch.begun();
      try {
        const { mimeType, audio } = await synthesizer.synthesize(utterance, signal, firstByteMs);
        watch.answered(secondsSince(startedAt));
        return { mimeType, audio: tellEnd(audio, signal, watch, startedAt) };
      } catch (error) {
        watch.ended({ outcome: 'failed', error, isLate: signal.aborted }, secondsSince(startedAt));
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
    ...provider,
    synthesize: measured(provider),
    ...(provider.reserve && {
      reserve: (utterance) => {
        const place = provider.reserve?.(utterance) as Place | SpeechError;
        return place instanceof SpeechError ? place : measuredPlace(place);
      },
    }),
  };
}

async function* tellEnd(
  audio: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
  watch: SynthesisWatch,
  startedAt: number,
) {
  let end: SynthesisEnd = { outcome: 'abandoned' };
  try {
    yield* audio;
    end = { outcome: 'ok' };
  } catch (error) {
    end = { outcome: 'failed', error, isLate: signal.aborted };
    throw error;
  } finally {
    watch.ended(end, secondsSince(startedAt));
  }
}

const secondsSince = (startedAt: number): number => (performance.now() - startedAt) / 1000;
