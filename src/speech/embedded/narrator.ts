import type { Utterance } from '../provider.ts';
import { kilobitsPerSecond, maxAudioSeconds } from './duration.ts';
import type { Mp3Encoder } from './encoder.ts';
import { FLITE_SAMPLE_RATE, type Flite } from './flite.ts';
import { recipeOf } from './recipes.ts';
import { segmentsOf } from './segments.ts';

/** What a text with nothing to speak sounds like. */
const SECONDS_OF_SILENCE = 0.5;

/**
 * Speaks an utterance segment by segment, to its end; the pieces together are one MP3 stream, and none is empty. Throws
 * when the audio is longer than is accepted, since what is cut off must not be paid.
 */
export function* narrate(utterance: Utterance, flite: Flite, encoder: Mp3Encoder): Generator<Uint8Array<ArrayBuffer>> {
  const recipe = recipeOf(utterance.voice);
  // Samples played back at a scaled rate have all frequencies scaled; the stretch makes up for the duration.
  const sampleRate = Math.round(FLITE_SAMPLE_RATE * recipe.shift);
  const stretch = sampleRate / FLITE_SAMPLE_RATE / utterance.speed;
  encoder.start({ sampleRate, kilobitsPerSecond: kilobitsPerSecond(utterance), gain: recipe.gain });

  let spoken = 0;
  for (const segment of segmentsOf(utterance.text)) {
    const samples = flite.speak(segment, recipe, stretch);
    spoken += samples.length;
    if (spoken > maxAudioSeconds(utterance) * sampleRate) throw new Error('the speech is longer than expected');
    const piece = encoder.encode(samples);
    if (piece.length > 0) yield piece;
  }

  if (spoken === 0) yield encoder.encode(new Int16Array(SECONDS_OF_SILENCE * sampleRate));
  yield encoder.finish();
}
