import { createHash } from 'node:crypto';
import { silentMp3 } from '../../../test/support/silent-audio.ts';

const SHORTEST_FRAMES = 4;
const LENGTHS = 4096;
const FRAME_MS = 24;

/** Prefix of a text that is spoken in chunks with pauses. */
export const SLOWLY = 'Slowly';

/** MP3 audio whose length depends on the text, so that it identifies the text. Lasts from 0.1 to a few seconds. */
export function speechOf(text: string): Buffer {
  const drawn = createHash('sha256').update(text).digest().readUInt16BE() % LENGTHS;
  // Most of the 4096 lengths are below 100 frames, a few reach 260 frames or 50 kB.
  const frames = SHORTEST_FRAMES + Math.floor((drawn / LENGTHS) ** 2 * 256) + (text.startsWith(SLOWLY) ? 100 : 0);
  return silentMp3(frames * FRAME_MS);
}
