import { testPoint } from '../lib/test-point.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import { type CollectedSpeech, collectSpeech } from '../speech/collect.ts';
import { type Place, SpeechError, type Utterance } from '../speech/provider.ts';
import type { SpeechAdmission } from '../speech/speech-admission.ts';
import type { Delivery } from './delivery.ts';
import type { PaymentHold } from './payment-flow.ts';
import type { RefusalCode } from './refusal.ts';

/** What speaks while a caller waits for the whole. */
export interface BufferedSpeech {
  readonly admission: SpeechAdmission;
  /** Longest synthesis that is collected before it is paid. */
  readonly timeoutMs: number;
  /** What waits for the provider is taken from it. */
  readonly inProgress: WorkInProgress;
}

/**
 * Collects the audio, and captures the hold then (R21, R55): whether or not the caller still listens, and nothing is
 * delivered before. Only MPEG audio counts (R56).
 */
export const buffered = ({ admission, timeoutMs, inProgress }: BufferedSpeech): Delivery<PaymentHold, Buffer> => ({
  admit: (utterance) => {
    const place = admission.admitBuffered(utterance);
    if (place instanceof SpeechError) return place;
    return {
      deliver(hold) {
        const longestMs = Math.min(hold.timeoutMs ?? timeoutMs, timeoutMs);
        return collectAndCapture(hold, place, { utterance, timeoutMs: longestMs, inProgress });
      },
      release() {
        place.release();
      },
    };
  },
});

interface Collecting extends Pick<BufferedSpeech, 'timeoutMs' | 'inProgress'> {
  readonly utterance: Utterance;
}

async function collectAndCapture<Code extends RefusalCode>(
  hold: PaymentHold<Code>,
  place: Place,
  { utterance, timeoutMs, inProgress }: Collecting,
) {
  testPoint('speech held');
  let speech: CollectedSpeech;
  try {
    const collecting = collectSpeech(place, utterance, AbortSignal.timeout(timeoutMs), 'audio/mpeg');
    speech = await inProgress.waitFor(collecting);
  } catch (error) {
    testPoint('speech failed');
    await hold.void();
    throw error;
  }
  testPoint('speech spoken');
  const refusal = await hold.capture(speech.upstream, speech.audio);
  testPoint('speech captured');
  return refusal ?? { outcome: 'delivered' as const, delivered: speech.audio };
}
