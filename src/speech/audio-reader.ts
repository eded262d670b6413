/**
 * Why a body can't be sold: it was cut off; it holds no audio; something in it is neither audio nor a tag; or it is
 * several files that can't be played as one.
 */
export type AudioFault = 'truncated' | 'no audio' | 'damaged' | 'several files';

/** Takes what can be played out of one body while it streams by, and finds out whether that is whole (R68). */
export interface AudioReader {
  /** Whether audio was passed on, and not only what stands before it. */
  readonly hasAudio: boolean;
  /** Passes on what of the next bytes belongs to the audio. Takes nothing more after a fault. */
  push(bytes: Uint8Array): AudioFault | undefined;
  /** The body is over. */
  end(): AudioFault | undefined;
}

export interface ReaderOptions {
  /** Is given what belongs to the audio, in order. */
  readonly pass: (bytes: Uint8Array) => void;
  /** Bytes of the whole body, where its sender has announced them. */
  readonly bodyBytes: number | undefined;
}

/** The bytes as a Buffer, without a copy. */
export const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Whether the bytes from `offset` on are this text, as far as there are any. */
export function matches(bytes: Uint8Array, offset: number, ascii: string): boolean {
  for (let i = 0; i < ascii.length && offset + i < bytes.length; i++) {
    if (bytes[offset + i] !== ascii.charCodeAt(i)) return false;
  }
  return true;
}
