import { Readable } from 'node:stream';
import { testPoint } from '../lib/test-point.ts';
import { holdingBack } from '../speech/audio-end.ts';
import { collectSpeech, completed, readIfComplete, synthesizeWithFailover } from '../speech/open-provider.ts';
import {
  type AudioType,
  MAX_AUDIO_BYTES,
  type SpeakingUpstream,
  SpeechError,
  type SpeechProvider,
  type Utterance,
} from '../speech/provider.ts';
import type { AudioMemory, Share } from '../speech/synthesis-permits.ts';

/** `lost` aborts when another process may soon own the hold: audio after that is useless. */
type DeliveryBounds = { readonly timeoutMs: number | undefined; readonly lost: AbortSignal };

/** Speech of which no byte is sent yet. */
export interface ReadySpeech<Body> {
  readonly body: Body;
  readonly upstream: SpeakingUpstream | undefined;
  /** The whole body, to settle for and to keep. Absent when streamed. */
  readonly audio?: Buffer;
  /** Resolves when the body has all audio. Rejects if the upstream broke off: void the hold, then `abort` the body. */
  readonly complete: Promise<void>;
  readonly abort?: (error: Error) => void;
}

export type Delivery<Body> = (utterance: Utterance, bounds: DeliveryBounds) => Promise<ReadySpeech<Body>>;

export interface BufferedSpeech {
  readonly provider: SpeechProvider;
  readonly timeoutMs: number;
  readonly memory: AudioMemory;
}

/** Collects the audio and sends it as a whole. Only MPEG audio is accepted (R56). */
export const buffered =
  ({ provider, timeoutMs, memory }: BufferedSpeech): Delivery<Buffer> =>
  async (utterance, bounds) => {
    const longestMs = Math.min(bounds.timeoutMs ?? timeoutMs, timeoutMs);
    // AbortSignal.any and AbortSignal.timeout live until a garbage collection of all memory.
    const controller = new AbortController();
    const abort = () => controller.abort();
    const timer = setTimeout(abort, longestMs);
    bounds.lost.addEventListener('abort', abort, { once: true });
    const share = memory.share();
    try {
      const { audio, upstream } = await collectSpeech(provider, utterance, controller.signal, 'audio/mpeg', share);
      testPoint('speech spoken');
      return { body: audio, audio, upstream, complete: Promise.resolve() };
    } finally {
      clearTimeout(timer);
      share.release();
    }
  };

/** Buffers and counts audio that a slow caller has not read yet. */
class AudioOutlet extends Readable {
  readonly #share: Share;
  #counted = 0;

  constructor(memory: AudioMemory) {
    super({ highWaterMark: 64 * 1024 });
    this.#share = memory.share(() =>
      this.destroy(
        new Error(
          'the caller read its audio too slowly while the memory for audio was full, so the response was cut off',
        ),
      ),
    );
  }

  give(chunk: Uint8Array): void {
    if (this.destroyed) return;
    this.push(chunk);
    this.#count();
  }

  finish(): void {
    if (!this.destroyed) this.push(null);
  }

  override _read(): void {
    this.#count();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#share.release();
    callback(error);
  }

  #count(): void {
    this.#share.add(this.readableLength - this.#counted);
    this.#counted = this.readableLength;
  }
}

type StreamBounds = { readonly silenceMs: number; readonly totalMs: number };

type StreamDeadline = ReturnType<StreamDeadlines['begin']>;

/** Deadlines of streamed speech. A broken stream is not paid, so only silence ends it soon. */
export class StreamDeadlines {
  readonly #silenceMs: number;
  readonly #totalMs: number;
  readonly #running = new Set<AbortController>();
  #isOver = false;

  constructor({ silenceMs, totalMs }: StreamBounds) {
    this.#silenceMs = silenceMs;
    this.#totalMs = Math.max(totalMs, silenceMs);
  }

  begin() {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const silence = setTimeout(abort, this.#silenceMs);
    const endsAt = performance.now() + this.#totalMs;
    this.#running.add(controller);
    if (this.#isOver) abort();
    return {
      signal: controller.signal,
      abort,
      heard: () => {
        if (performance.now() < endsAt) silence.refresh();
        else abort();
      },
      end: () => {
        clearTimeout(silence);
        this.#running.delete(controller);
      },
    };
  }

  stop(): void {
    setTimeout(() => {
      this.#isOver = true;
      for (const controller of this.#running) controller.abort();
    }, this.#silenceMs).unref();
  }
}

type StreamedSpeech = { readonly mimeType: AudioType; readonly audio: Readable | Buffer };

export interface Streaming {
  readonly provider: SpeechProvider;
  readonly deadlines: StreamDeadlines;
  readonly memory: AudioMemory;
}

/**
 * Streams the audio while it is synthesized (R55):
 *
 *     upstream fails before audio  -> the next one, under the same deadline and hold
 *     the last one fails           -> SpeechError, nothing is sent
 *     audio is complete at once    -> sent as a whole
 *     upstream breaks off, silence -> the response is aborted, at a byte at which no audio ends
 *     caller disconnects           -> read on to the end
 *
 * A slow caller never slows the upstream: unread audio waits in memory.
 */
export const streamed =
  ({ provider, deadlines, memory }: Streaming): Delivery<StreamedSpeech> =>
  async (utterance, { lost }) => {
    const deadline = deadlines.begin();
    const abort = () => deadline.abort();
    lost.addEventListener('abort', abort, { once: true });
    try {
      const beginning = provider.synthesize({ ...utterance, isStreamed: true }, deadline.signal);
      const [speech, begun] = await synthesizeWithFailover(
        beginning,
        async (given) => [given, await readIfComplete(given.audio)] as const,
      );
      const { mimeType, upstream } = speech;
      if (begun.outcome === 'whole') {
        deadline.end();
        testPoint('whole speech spoken');
        const audio = completed(speech, begun.audio);
        return { body: { mimeType, audio }, upstream, complete: Promise.resolve() };
      }
      const audio = new AudioOutlet(memory);
      // Fastify destroys the stream when the caller disconnects. It then has no listener for later errors.
      audio.on('error', () => {});
      const complete = forward(holdingBack(begun.audio, mimeType), audio, deadline).finally(() => deadline.end());
      return { body: { mimeType, audio }, upstream, complete, abort: (error) => void audio.destroy(error) };
    } catch (error) {
      deadline.end();
      throw error;
    }
  };

async function forward(source: AsyncIterable<Uint8Array>, target: AudioOutlet, deadline: StreamDeadline) {
  let size = 0;
  try {
    for await (const chunk of source) {
      deadline.heard();
      size += chunk.length;
      if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
      target.give(chunk);
    }
  } catch (error) {
    testPoint('stream broken off');
    throw error;
  }
  testPoint('stream spoken');
  target.finish();
}
