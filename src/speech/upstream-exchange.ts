import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import type { AudioCheck } from './audio-check.ts';
import { audioCheck, detectAudioType, MAGIC_BYTES } from './audio-format.ts';
import { ChunkQueue, type ChunkSource } from './chunk-queue.ts';
import { type AudioType, MAX_AUDIO_BYTES, type Speech, type SpeechError } from './provider.ts';
import {
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

/** Services label audio loosely, so the label only has to be plausible; the magic bytes decide. */
const AUDIO_CONTENT_TYPES = new Set([
  'audio/mpeg',
  'audio/mp3',
  'audio/x-mpeg',
  'audio/wav',
  'audio/x-wav',
  'audio/wave',
  'audio/vnd.wave',
  'application/octet-stream',
]);

export interface ExchangeLimits {
  /** Deadline of the whole exchange. */
  signal: AbortSignal;
  /** Longest wait for the first bytes of audio. */
  firstByteTimeoutMs: number;
}

/**
 * Sends one request for speech. Resolves once status, content type and magic bytes say audio, rejects with SpeechError
 * (R9). Redirects are not followed.
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
 *     waiting ──2xx, audio type──> sniffing ──magic bytes──> streaming ──end──> over
 *        │                             │                         │
 *        └──────────refused────────────┴─> discarding ──end──> over (the promise has been rejected)
 *
 * `#stop` leads from every state to `over` and cuts the connection.
 */
class Exchange implements Dispatcher.DispatchHandler, ChunkSource {
  #state: 'waiting' | 'sniffing' | 'streaming' | 'discarding' | 'over' = 'waiting';
  #controller: Dispatcher.DispatchController | undefined;
  #received = 0;
  #head: Uint8Array[] = [];
  #check: AudioCheck | undefined;
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
    const contentType = String(headers['content-type']).split(';', 1)[0]?.trim().toLowerCase() ?? '';
    if (status > 299) this.#refuse(statusError(status, headers['retry-after']));
    else if (!AUDIO_CONTENT_TYPES.has(contentType)) this.#refuse(notAudio());
    else if (Number(headers['content-length'] ?? 0) > MAX_AUDIO_BYTES) this.#stop(tooLarge());
    else this.#state = 'sniffing';
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    this.#received += chunk.length;
    if (this.#state === 'sniffing') {
      this.#sniff(chunk);
    } else if (this.#state === 'discarding') {
      if (this.#received > MAX_DISCARDED_BYTES) this.#stop(notAudio());
    } else if (this.#received > MAX_AUDIO_BYTES) {
      this.#stop(tooLarge());
    } else {
      this.#check?.push(chunk);
      if (!this.#queue.push(chunk)) controller.pause();
    }
  }

  onResponseEnd(): void {
    const fault = this.#check?.end();
    if (this.#state === 'sniffing') this.#reject(notAudio());
    this.#queue.close(fault && (fault === 'truncated' ? brokenOff() : notAudio()));
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

  #sniff(chunk: Uint8Array): void {
    this.#head.push(chunk);
    const magic = this.#head.length === 1 ? chunk : Buffer.concat(this.#head, Math.min(this.#received, MAGIC_BYTES));
    const type = detectAudioType(magic);
    if (type === 'not-audio') this.#refuse(notAudio());
    else if (type) this.#stream(type);
  }

  #stream(type: AudioType): void {
    clearTimeout(this.#firstByteTimer);
    this.#state = 'streaming';
    this.#check = audioCheck(type);
    for (const part of this.#head) {
      this.#check.push(part);
      this.#queue.push(part);
    }
    this.#head = [];
    this.#resolve({ mimeType: type, audio: this.#queue });
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
