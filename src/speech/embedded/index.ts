import { availableParallelism } from 'node:os';
import { SpeechError, type SpeechProvider, type Utterance } from '../provider.ts';
import { Backlog, type Text } from './backlog.ts';
import { longestSeconds, maxAudioSeconds } from './duration.ts';
import { loadEngine } from './engine.ts';
import { firstForeignLetter } from './legible.ts';
import { Narration } from './narration.ts';
import { ThreadPool } from './pool.ts';
import { SpeechThread, unavailable } from './thread.ts';

const WAITING_PER_WORKER = 16;
const MAX_WAIT_MS = 15_000;

/**
 * A speech provider that needs nothing from outside: flite's voices in worker threads, spoken as constant bit rate MP3 (mono,
 * 16 kHz; 48 kbit/s, `tts-1-hd` 96). They read English. A text with letters that are not Latin is refused, and so is one that
 * might be spoken for longer than is accepted; any other one is spoken to its end.
 *
 * It starts to load at once. `workers` is how many utterances are spoken at a time, by default one per processor and at least
 * two; sixteen times as many may wait, and more are refused with TTS_UNAVAILABLE (R9). A place is promised only while the wait
 * for a thread is going to be `maxWaitMs` at most, and is kept. A thread whose utterance is given up is ended and replaced.
 */
export function embeddedVoice({
  workers = Math.max(2, availableParallelism()),
  maxWaitMs = MAX_WAIT_MS,
}: {
  workers?: number;
  maxWaitMs?: number;
} = {}): SpeechProvider {
  const maxWaiting = WAITING_PER_WORKER * workers;
  const backlog = new Backlog(workers, workers + maxWaiting, maxWaitMs);
  const starting = loadEngine().then(
    (engine) => new ThreadPool(workers, maxWaiting, (onExit) => new SpeechThread(engine, onExit)),
  );
  starting.catch(() => {});

  async function speak(utterance: Utterance, signal: AbortSignal, text: Text, isPromised: boolean) {
    try {
      const pool = await starting.catch(() => {
        throw unavailable('The embedded voice could not be loaded; reinstall the packages');
      });
      const thread = await pool.acquire(signal, isPromised);
      text.begin();
      const narration = new Narration(thread, utterance, signal, (isSpoken) => {
        text.end(isSpoken);
        pool.release(thread);
      });
      await narration.started();
      return { mimeType: 'audio/mpeg' as const, audio: narration };
    } catch (error) {
      text.end(false);
      throw error;
    }
  }

  return {
    synthesize: (utterance, signal) => speak(utterance, signal, backlog.add(longestSeconds(utterance)), false),
    refuse: (utterance) => {
      const foreign = firstForeignLetter(utterance.text);
      if (foreign !== undefined) return illegible(foreign + 1);
      const maximum = maxAudioSeconds(utterance);
      if (longestSeconds(utterance) <= maximum) return undefined;
      const minutes = Math.floor(maximum / 60);
      const message = `text may take more than ${minutes} minutes to speak. Split it, or speak faster.`;
      return new SpeechError('TEXT_TOO_LONG', message, false);
    },
    reserve: (utterance) => {
      const text = backlog.admit(longestSeconds(utterance));
      if (text instanceof SpeechError) return text;
      let isUsed = false;
      return {
        synthesize: (_utterance, signal) => {
          isUsed = true;
          return speak(utterance, signal, text, true);
        },
        release: () => {
          if (!isUsed) text.end(false);
        },
      };
    },
    async close() {
      await starting.then(
        (pool) => pool.close(),
        () => {},
      );
    },
  };
}

const illegible = (position: number) =>
  new SpeechError(
    'INVALID_REQUEST',
    `text has a letter that is not Latin at character ${position}. The embedded voice reads English only; with another ` +
      'speech server (SPEECH_BASE_URL) its operator can offer other languages.',
    false,
  );
