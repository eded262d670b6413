import { createHash } from 'node:crypto';
import type { Logger } from 'pino';
import type { Catalog, Model, Voice } from '../config/catalog.ts';
import { SPEED } from '../config/speech-limits.ts';
import { compileSchema } from '../lib/json-schema.ts';
import { within } from '../lib/within.ts';
import { collectSpeech } from './open-provider.ts';
import { utteranceOf } from './order.ts';
import { SpeechError, type SpeechProvider } from './provider.ts';
import type { AudioStore, StoredAudio } from './store/audio-store.ts';

export const SAMPLE_TEXT = 'Hello! This is how I sound. I read your text aloud, word for word.';

const INDEX_KEY = 'samples/index';
const REFRESH_MS = 10_000;
const READ_TIMEOUT_MS = 1_000;
const SYNTHESIS_MS = 60_000;

/** SHA-256 of the audio by voice. */
type Digests = Readonly<Record<string, string>>;
const isDigests = compileSchema<Digests>({
  type: 'object',
  additionalProperties: { type: 'string', pattern: '^[0-9a-f]{64}$' },
});

/** A voice that the catalog gives to another voice of the upstream has no sample yet. */
const entryOf = ({ id, upstreamModel }: Model, voice: Voice): string =>
  [id, voice.id, upstreamModel, voice.upstreamVoice].join(' ');
const keyOf = (digest: string): string => `samples/${digest}`;

export const samplePath = (model: Model, voice: Voice): string =>
  `/tts/voices/${encodeURIComponent(voice.id)}/sample?model=${encodeURIComponent(model.id)}`;

/** The voices that have a sample. */
export interface KnownSamples {
  has(model: Model, voice: Voice): boolean;
}

export const NO_SAMPLES: KnownSamples = { has: () => false };

const knownIn = (digests: Digests): KnownSamples => ({ has: (model, voice) => entryOf(model, voice) in digests });

/** Samples that `speakSamples` has stored. */
export class VoiceSamples {
  readonly #store: AudioStore;
  readonly #log: Logger;
  #digests: Digests = {};
  #known = NO_SAMPLES;
  #reading: Promise<void> | undefined;
  #nextReadAt = 0;

  constructor(store: AudioStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  /** As of some seconds ago. Waits for the store for a second at most; its failures are logged. */
  async known(): Promise<KnownSamples> {
    if (performance.now() >= this.#nextReadAt) {
      this.#nextReadAt = performance.now() + REFRESH_MS;
      const reading = this.#read();
      reading.catch((err) =>
        this.#log.error(
          { err },
          'failed to read the list of voice samples from the audio store, so the service keeps the list that it read last, if any. Read err for the cause if this repeats',
        ),
      );
      await within(READ_TIMEOUT_MS, reading);
    }
    return this.#known;
  }

  /** Undefined if there is none. The caller must read or destroy the stream. @throws StoreError */
  async open(model: Model, voice: Voice): Promise<(StoredAudio & { readonly digest: string }) | undefined> {
    const entry = entryOf(model, voice);
    if (!(entry in this.#digests)) await this.#read();
    const digest = this.#digests[entry];
    const stored = digest === undefined ? undefined : await this.#store.open(keyOf(digest));
    return stored && { ...stored, digest: digest as string };
  }

  #read(): Promise<void> {
    this.#reading ??= readIndex(this.#store)
      .then((digests) => {
        this.#digests = digests;
        this.#known = knownIn(digests);
      })
      .finally(() => {
        this.#reading = undefined;
      });
    return this.#reading;
  }
}

export interface SampleResult {
  readonly model: Model;
  readonly voice: Voice;
  /** Undefined if the sample is stored now. */
  readonly failure: SpeechError | undefined;
}

/** Speaks what has no sample yet, or everything again, one after the other. @throws StoreError */
export async function* speakSamples(
  store: AudioStore,
  provider: SpeechProvider,
  catalog: Catalog,
  { again = false, signal }: { again?: boolean; signal?: AbortSignal } = {},
): AsyncGenerator<SampleResult> {
  let digests = await readIndex(store);
  for (const model of catalog.models.filter(({ available }) => available)) {
    for (const voice of model.voices) {
      const entry = entryOf(model, voice);
      if (entry in digests && !again) continue;
      if (signal?.aborted) return;
      try {
        const utterance = utteranceOf({ model, voice, speed: SPEED.default }, SAMPLE_TEXT);
        const timeout = AbortSignal.timeout(SYNTHESIS_MS);
        const { audio } = await collectSpeech(provider, utterance, timeout, 'audio/mpeg');
        const digest = createHash('sha256').update(audio).digest('hex');
        await store.put(keyOf(digest), audio, 'audio/mpeg');
        digests = { ...digests, [entry]: digest };
        await store.put(INDEX_KEY, Buffer.from(JSON.stringify(digests)), 'application/json');
        yield { model, voice, failure: undefined };
      } catch (error) {
        if (!(error instanceof SpeechError)) throw error;
        yield { model, voice, failure: error };
      }
    }
  }
}

async function readIndex(store: AudioStore): Promise<Digests> {
  const stored = await store.open(INDEX_KEY);
  if (stored === undefined) return {};
  const index: unknown = JSON.parse(Buffer.concat(await stored.stream.toArray()).toString());
  if (!isDigests(index)) throw new Error(`${INDEX_KEY} in the audio store is no list of voice samples.`);
  return index;
}
