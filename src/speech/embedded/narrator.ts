import type { Utterance } from '../provider.ts';
import type { Mp3Encoder } from './encoder.ts';
import { FLITE_SAMPLE_RATE, type Flite } from './flite.ts';
import { recipeOf } from './recipes.ts';
import { segmentsOf } from './segments.ts';

/**
 * Longest audio of one utterance. A text is bounded in characters, not in time: 4096 digits take 22 minutes, or 44 at half the
 * speed. Speech ends with the last segment that fits; 4096 characters of words in an alphabet always do.
 */
export const MAX_AUDIO_SECONDS = 1_200;

/** What a text with nothing to speak sounds like. */
const SECONDS_OF_SILENCE = 0.5;

/** Speaks an utterance segment by segment; the pieces together are one MP3 stream, and none is empty. */
export function* narrate(utterance: Utterance, flite: Flite, encoder: Mp3Encoder): Generator<Uint8Array<ArrayBuffer>> {
  const recipe = recipeOf(utterance.voice);
  // Samples played back at a scaled rate have all frequencies scaled; the stretch makes up for the duration.
  const sampleRate = Math.round(FLITE_SAMPLE_RATE * recipe.shift);
  const stretch = sampleRate / FLITE_SAMPLE_RATE / utterance.speed;
  encoder.start({ sampleRate, kilobitsPerSecond: utterance.model === 'tts-1-hd' ? 96 : 48, gain: recipe.gain });

  let spoken = 0;
  for (const segment of segmentsOf(utterance.text)) {
    const samples = flite.speak(segment, recipe, stretch);
    if (spoken + samples.length > MAX_AUDIO_SECONDS * sampleRate) break;
    spoken += samples.length;
    const piece = encoder.encode(samples);
    if (piece.length > 0) yield piece;
  }

  if (spoken === 0) yield encoder.encode(new Int16Array(SECONDS_OF_SILENCE * sampleRate));
  yield encoder.finish();
}
