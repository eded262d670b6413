import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import { audioReader, detectAudioType, MAGIC_BYTES } from './audio-format.ts';
import type { AudioFault, AudioReader } from './audio-reader.ts';
import { ChunkQueue, type ChunkSource } from './chunk-queue.ts';
import { type AudioType, MAX_AUDIO_BYTES, type Speech, type SpeechError } from './provider.ts';
import {
  audioError,
  brokenOff,
  connectionError,
  deadlineExceeded,
  firstByteTimeout,
  notAudio,
  statusError,
  tooLarge,
} from './upstream-errors.ts';

/** An unwanted body up to this size is read, so that its connection can be used again; beyond it the connection is cut. */
const MAX_DISCARDED_BYTES = 4096;

/** What a label of text stands for is never audio. Every other one is a guess, and so is none: the bytes decide. */
const TEXT_CONTENT_TYPE = /^(text|multipart)\/|\b(json|xml|html)\b/;

export interface ExchangeLimits {
  /** Deadline of the whole exchange. */
  signal: AbortSignal;
  /** Longest wait for the first bytes of audio. */
  firstByteTimeoutMs: number;
}

/**
 * Sends one request for speech. Resolves once its first audio is there, rejects with SpeechError (R9). Redirects are not followed.
 */
export function exchange(
  dispatcher: Dispatcher,
  request: Dispatcher.DispatchOptions,
  limits: ExchangeLimits,
): Promise<Speech> {
  if (limits.signal.aborted) return Promise.reject(deadlineExceeded());
  return new Promise((resolve, reject) => {
    dispatcher.dispatch(request, new Exchange(resolve, reject, limits));
  });
}

/**
 * The life of one request:
 *
 *     waiting ──2xx──> sniffing ──first audio──> streaming ──end──> over
 *        │                 │                         │
 *        └─────refused─────┴─> discarding ──end──> over (the promise has been rejected)
 *
 * `#stop` leads from every state to `over` and cuts the connection.
 */
class Exchange implements Dispatcher.DispatchHandler, ChunkSource {
  #state: 'waiting' | 'sniffing' | 'streaming' | 'discarding' | 'over' = 'waiting';
  #controller: Dispatcher.DispatchController | undefined;
  #received = 0;
  #head: Uint8Array[] = [];
  #bodyBytes: number | undefined;
  #type: AudioType = 'audio/mpeg';
  #reader: AudioReader | undefined;
  #hasRoom = true;
  /** The body ends with its connection: a break looks like its end. */
  #endsByClose = false;
  readonly #queue = new ChunkQueue(this);
  readonly #resolve: (speech: Speech) => void;
  readonly #reject: (error: SpeechError) => void;
  readonly #signal: AbortSignal;
  readonly #firstByteTimer: NodeJS.Timeout;
  readonly #onAbort = () => this.#stop(deadlineExceeded());

  constructor(resolve: (speech: Speech) => void, reject: (error: SpeechError) => void, limits: ExchangeLimits) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = limits.signal;
    this.#signal.addEventListener('abort', this.#onAbort);
    this.#firstByteTimer = setTimeout(() => this.#stop(firstByteTimeout()), limits.firstByteTimeoutMs);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#state === 'over') controller.abort(deadlineExceeded());
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    const length = headers['content-length'];
    this.#bodyBytes = length === undefined ? undefined : Number(length);
    this.#endsByClose = length === undefined && headers['transfer-encoding'] === undefined;
    if (status > 299) this.#refuse(statusError(status, headers['retry-after']));
    else if (TEXT_CONTENT_TYPE.test(String(headers['content-type']).toLowerCase())) this.#refuse(notAudio());
    else if (this.#bodyBytes !== undefined && this.#bodyBytes > MAX_AUDIO_BYTES) this.#stop(tooLarge());
    else this.#state = 'sniffing';
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    this.#received += chunk.length;
    if (this.#state === 'discarding') {
      if (this.#received > MAX_DISCARDED_BYTES) this.#stop(notAudio());
    } else if (this.#received > MAX_AUDIO_BYTES) {
      this.#stop(tooLarge());
    } else {
      this.#hasRoom = true;
      this.#take(chunk);
      if (this.#state === 'streaming' && !this.#hasRoom) controller.pause();
    }
  }

  onResponseEnd(): void {
    const fault = this.#reader?.end();
    const error = fault === 'truncated' && this.#endsByClose ? brokenOff() : fault && audioError(fault);
    if (this.#state === 'sniffing') this.#reject(error ?? audioError('no audio'));
    this.#queue.close(error);
    this.#finish();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#state === 'over') return;
    const failure = this.#state === 'waiting' ? connectionError(error) : brokenOff();
    this.#reject(failure);
    this.#queue.close(failure);
    this.#finish();
  }

  resume(): void {
    this.#controller?.resume();
  }

  cancel(): void {
    this.#stop(deadlineExceeded());
  }

  #take(chunk: Uint8Array): void {
    if (this.#reader) {
      this.#read(this.#reader, chunk);
      return;
    }
    this.#head.push(chunk);
    const type = detectAudioType(Buffer.concat(this.#head, Math.min(this.#received, MAGIC_BYTES)));
    if (type === 'not-audio') this.#refuse(notAudio());
    else if (type) this.#open(type);
  }

  #open(type: AudioType): void {
    this.#type = type;
    const pass = (bytes: Uint8Array) => {
      this.#hasRoom = this.#queue.push(bytes);
    };
    const reader = audioReader(type, { pass, bodyBytes: this.#bodyBytes });
    this.#reader = reader;
    const head = this.#head;
    this.#head = [];
    this.#read(reader, head.length === 1 ? (head[0] as Uint8Array) : Buffer.concat(head));
  }

  #read(reader: AudioReader, bytes: Uint8Array): void {
    const fault = reader.push(bytes);
    if (fault) this.#fail(fault);
    else if (this.#state === 'sniffing' && reader.hasAudio) {
      clearTimeout(this.#firstByteTimer);
      this.#state = 'streaming';
      this.#resolve({ mimeType: this.#type, audio: this.#queue });
    }
  }

  #fail(fault: AudioFault): void {
    if (this.#state === 'sniffing') this.#refuse(audioError(fault));
    else this.#stop(audioError(fault));
  }

  /** Rejects at once, and reads what is left of a short body. The timer and the signal still bound that. */
  #refuse(error: SpeechError): void {
    this.#reject(error);
    this.#head = [];
    this.#state = 'discarding';
  }

  /** Ends everything now. A promise that has been settled stays as it is. */
  #stop(error: SpeechError): void {
    this.#reject(error);
    this.#queue.abort(error);
    this.#finish();
    this.#controller?.abort(error);
  }

  #finish(): void {
    this.#state = 'over';
    clearTimeout(this.#firstByteTimer);
    this.#signal.removeEventListener('abort', this.#onAbort);
  }
}
