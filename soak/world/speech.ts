import { createHash } from 'node:crypto';
import { silentMp3 } from '../../test/support/silent-audio.ts';

const SHORTEST_FRAMES = 4;
const LENGTHS = 4096;
const FRAME_MS = 24;

/** How a text begins that is spoken in pieces, with a pause between them. */
export const SLOWLY = 'Slowly';

/**
 * What the speech server says for a text: MP3 whose length follows from the text, so that it can be told whose it is; from
 * 0.1 to some seconds, mostly short. Texts that are spoken slowly are longer.
 */
export function speechOf(text: string): Buffer {
  const drawn = createHash('sha256').update(text).digest().readUInt16BE() % LENGTHS;
  // Most of 4096 lengths below 100 frames, a few up to 260: half a hundred kilobytes.
  const frames = SHORTEST_FRAMES + Math.floor((drawn / LENGTHS) ** 2 * 256) + (text.startsWith(SLOWLY) ? 100 : 0);
  return silentMp3(frames * FRAME_MS);
}
