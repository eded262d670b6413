import { withDescription } from './mpeg-description.ts';
import type { AudioType } from './provider.ts';
import { writeSizes } from './wave-sizes.ts';

/** Completes a whole file by what could not be known while it streamed: its length (R68). May change `bytes`. */
export function wholeAudio(type: AudioType, bytes: Uint8Array, description?: Uint8Array): Uint8Array {
  if (type === 'audio/mpeg') return withDescription(bytes, description);
  writeSizes(bytes);
  return bytes;
}
