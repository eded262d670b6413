import type { Socket } from 'node:net';
import { MP3_FRAME_BYTES, silentMp3 } from '../../../test/support/silent-audio.ts';
import { AUDIO_BYTES } from '../world.ts';
import { answer, type RawHandler } from './raw-http-server.ts';

export interface Manner {
  readonly bytes: number;
  readonly delayMs: number;
  /** Pieces of the chunked response, one each `pieceMs`. 1 sends all at once with a length. */
  readonly pieces: number;
  readonly pieceMs: number;
}

export const AT_ONCE: Manner = { bytes: AUDIO_BYTES, delayMs: 0, pieces: 1, pieceMs: 0 };

/** An MP3 frame of 384 bytes lasts 24 ms. */
const audio = (bytes: number): Buffer => silentMp3((bytes / MP3_FRAME_BYTES) * 24);

const DRIPPING =
  'HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n';

/** An OpenAI-compatible speech server with prebuilt audio. */
export class Upstream {
  #manner = AT_ONCE;
  #answer = answer('audio/mpeg', audio(AT_ONCE.bytes));

  speak(manner: Manner): void {
    this.#manner = manner;
    this.#answer = answer('audio/mpeg', audio(manner.bytes));
  }

  readonly handler: RawHandler = (_request, socket) => {
    const { delayMs, pieces } = this.#manner;
    const whole = this.#answer;
    const speak = pieces > 1 ? () => drip(socket, this.#manner) : () => socket.write(whole);
    if (delayMs > 0) setTimeout(speak, delayMs);
    else speak();
  };
}

function drip(socket: Socket, { bytes, pieces, pieceMs }: Manner): void {
  const whole = audio(bytes);
  const size = Math.ceil(whole.length / pieces);
  socket.write(DRIPPING);
  const say = (at: number) => {
    const part = whole.subarray(at, at + size);
    const isLast = at + size >= whole.length;
    const end = isLast ? '\r\n0\r\n\r\n' : '\r\n';
    socket.write(Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from(end)]));
    if (!isLast) setTimeout(say, pieceMs, at + size);
  };
  say(0);
}
