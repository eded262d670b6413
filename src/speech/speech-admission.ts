import type { AudioMemory } from './audio-memory.ts';
import { type Place, type Speech, SpeechError, type SpeechProvider, type Utterance } from './provider.ts';

/** When a caller who was refused for want of memory may try again. */
const RETRY_AFTER_SECONDS = 5;

/**
 * Decides whether speech is taken on that a caller waits for. It is asked before anything is paid, and what it has taken
 * on is not refused later because of others.
 */
export class SpeechAdmission {
  readonly #provider: SpeechProvider;
  readonly #memory: AudioMemory;

  constructor(provider: SpeechProvider, memory: AudioMemory) {
    this.#provider = provider;
    this.#memory = memory;
  }

  /** Why this utterance would never be spoken to its end, however long one waits. */
  refuse(utterance: Utterance): SpeechError | undefined {
    return this.#provider.refuse?.(utterance);
  }

  /** A place for speech that is handed on while it is spoken; it is released when no synthesis follows. */
  admit(utterance: Utterance): Place | SpeechError {
    const refusal = this.refuse(utterance);
    if (refusal) return refusal;
    if (this.#memory.isFull) return tooMuchWaits();
    return this.#provider.reserve?.(utterance) ?? { synthesize: this.#provider.synthesize, release: nothing };
  }

  /** Likewise for speech that is collected first: what there is of it counts until the place is released. */
  admitBuffered(utterance: Utterance): Place | SpeechError {
    const place = this.admit(utterance);
    if (place instanceof SpeechError) return place;
    let isGivenUp = false;
    const share = this.#memory.share(() => {
      isGivenUp = true;
      share.release();
    });
    async function* counted(audio: AsyncIterable<Uint8Array>) {
      for await (const chunk of audio) {
        share.add(chunk.length);
        if (isGivenUp) throw tooMuchWaits();
        yield chunk;
      }
    }
    const countedSpeech = (speech: Speech): Speech => {
      const { instead } = speech;
      const countedInstead = async (error: SpeechError) => {
        if (isGivenUp || !instead) throw error;
        share.add(-share.bytes);
        return countedSpeech(await instead(error));
      };
      return { ...speech, audio: counted(speech.audio), ...(instead && { instead: countedInstead }) };
    };
    return {
      synthesize: async (given, signal) => countedSpeech(await place.synthesize(given, signal)),
      release() {
        share.release();
        place.release();
      },
    };
  }
}

const nothing = () => {};

const tooMuchWaits = () =>
  new SpeechError(
    'TTS_UNAVAILABLE',
    'Too much audio waits for its callers; try again later.',
    true,
    RETRY_AFTER_SECONDS,
  );
