import type { FastifyBaseLogger } from 'fastify';
import type { RunningWork } from '../../lib/running-work.ts';
import { testPoint } from '../../lib/test-point.ts';
import type { AudioStore, StoredAudio } from '../../speech/store/audio-store.ts';

/** How long the audio of a prepaid response can be fetched again (R60). */
export const PREPAID_AUDIO_SECONDS = 600;

interface PrepaidAudioStoreParts {
  readonly store: AudioStore;
  readonly maxBytesPerMinute: number;
  readonly work: RunningWork;
}

/** Stores the audio of prepaid responses that may be lost (R60). Best effort: nothing waits for it. */
export class PrepaidAudioStore {
  readonly #parts: PrepaidAudioStoreParts;
  #minute = 0;
  #bytesOfMinute = 0;

  constructor(parts: PrepaidAudioStoreParts) {
    this.#parts = parts;
  }

  store(id: string, audio: Buffer, log: FastifyBaseLogger): void {
    const { store, maxBytesPerMinute, work } = this.#parts;
    const minute = Math.floor(Date.now() / 60_000);
    if (minute !== this.#minute) this.#bytesOfMinute = 0;
    this.#minute = minute;
    if (this.#bytesOfMinute + audio.length > maxBytesPerMinute) return;
    this.#bytesOfMinute += audio.length;
    const stored = store.dated.prepaid
      .put(id, audio, 'audio/mpeg')
      .then(() => testPoint('prepaid audio kept'))
      .catch((err) =>
        log.warn(
          { err, hold: id },
          'failed to store the audio of a prepaid response, so a repeated request cannot get it; its charge stays. Check AUDIO_STORE',
        ),
      );
    work.add(stored);
  }

  open(id: string, range?: { readonly start: number; readonly end: number }): Promise<StoredAudio | undefined> {
    return this.#parts.store.dated.prepaid.open(id, range);
  }
}
