/** What is wrong with audio that has ended: it was cut off, or it is a container without a single sample. */
export type AudioFault = 'truncated' | 'no audio';

/** Follows one body of audio as it streams by and tells at its end whether it is whole. */
export interface AudioCheck {
  push(chunk: Uint8Array): void;
  end(): AudioFault | undefined;
}
