import { availableParallelism } from 'node:os';
import type { SpeechProvider } from '../provider.ts';
import { loadEngine } from './engine.ts';
import { Narration } from './narration.ts';
import { ThreadPool } from './pool.ts';
import { SpeechThread, unavailable } from './thread.ts';

const WAITING_PER_WORKER = 16;

/**
 * A speech provider that needs nothing from outside: flite's voices in worker threads, spoken as constant bit rate MP3 (mono,
 * 16 kHz; 48 kbit/s, `tts-1-hd` 96). Any text is spoken, transliterated where it is not Latin, up to MAX_AUDIO_SECONDS of audio.
 *
 * It starts to load at once. `workers` is how many utterances are spoken at a time, by default one per processor and at least
 * two; sixteen times as many may wait, and more are refused with TTS_UNAVAILABLE (R9). A thread whose utterance is given up is
 * ended and replaced.
 */
export function embeddedVoice({
  workers = Math.max(2, availableParallelism()),
}: {
  workers?: number;
} = {}): SpeechProvider {
  const starting = loadEngine().then(
    (engine) => new ThreadPool(workers, WAITING_PER_WORKER * workers, (onExit) => new SpeechThread(engine, onExit)),
  );
  starting.catch(() => {});

  return {
    async synthesize(utterance, signal) {
      const pool = await starting.catch(() => {
        throw unavailable('The embedded voice could not be loaded; reinstall the packages');
      });
      const thread = await pool.acquire(signal);
      const narration = new Narration(thread, utterance, signal, () => pool.release(thread));
      await narration.started();
      return { mimeType: 'audio/mpeg', audio: narration };
    },
    async close() {
      await starting.then(
        (pool) => pool.close(),
        () => {},
      );
    },
  };
}
