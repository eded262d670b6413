export type AudioFault = 'truncated' | 'no audio' | 'damaged' | 'several files';

/** Extracts what can be played from a body while it streams by, and checks that it is whole (R68). */
export interface AudioReader {
  readonly hasAudio: boolean;
  /** The playing time so far. */
  readonly seconds: number;
  /** Whether nothing but digital silence was read so far. A faint noise is none. */
  readonly isSilent: boolean;
  /** A frame that describes the first file of the body, and was not passed on. */
  readonly description?: Uint8Array | undefined;
  push(bytes: Uint8Array): AudioFault | undefined;
  end(): AudioFault | undefined;
}

export interface ReaderOptions {
  readonly pass: (bytes: Uint8Array) => void;
  readonly bodyBytes: number | undefined;
  /** Passes no tag: what is read is a part of a file. */
  readonly framesOnly?: boolean;
}

export const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
