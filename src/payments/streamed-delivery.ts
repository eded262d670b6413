import type { Readable } from 'node:stream';
import { testPoint } from '../lib/test-point.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import { type Begun, takeAtOnce } from '../speech/audio-at-once.ts';
import type { AudioMemory } from '../speech/audio-memory.ts';
import { speakUntilTaken } from '../speech/collect.ts';
import {
  type AudioType,
  MAX_AUDIO_BYTES,
  type SpeakingUpstream,
  type Speech,
  SpeechError,
  type Synthesizer,
  type Utterance,
} from '../speech/provider.ts';
import type { SpeechAdmission } from '../speech/speech-admission.ts';
import { AudioOutlet } from './audio-outlet.ts';
import type { Delivery } from './delivery.ts';
import type { PaymentHold } from './payment-flow.ts';
import type { RefusalCode, Refused } from './refusal.ts';
import type { StreamDeadline, StreamDeadlines } from './stream-deadlines.ts';

export interface StreamedSpeech {
  readonly mimeType: AudioType;
  readonly audio: Readable | Buffer;
  /** Tells, once the hold has ended, whether it was charged; whether or not the caller still listens. */
  readonly ended: Promise<boolean>;
}

/** What all streams of the process share. */
export interface Streaming {
  readonly admission: SpeechAdmission;
  readonly deadlines: StreamDeadlines;
  readonly memory: AudioMemory;
  /** What waits for the provider's first audio is taken from it. */
  readonly inProgress: WorkInProgress;
}

/**
 * Hands the audio on as it is produced (R55):
 *
 *     upstream fails before audio  -> the next one, under the same deadline and hold
 *     the last one fails           -> void, throw SpeechError
 *     audio is whole at once       -> capture, and only then hand it over; refuse when the hold is lost
 *     provider breaks off          -> void, break the stream off
 *     silence, or the hold is lost -> the same
 *     caller leaves                -> read on to the end, capture
 *     last byte                    -> capture, and only then the caller gets it
 *     capture finds the hold lost  -> break the stream off
 *
 * The caller's reading speed never slows the provider: what is not read yet waits in memory. While audio flows, the
 * hold's lease is renewed, so that a synthesis that takes long is heard to its end and paid.
 */
export const streamed = (streaming: Streaming): Delivery<PaymentHold, StreamedSpeech> => ({
  admit: (utterance) => {
    const place = streaming.admission.admit(utterance);
    if (place instanceof SpeechError) return place;
    return {
      deliver(hold) {
        return speakAndHandOn(hold, place, utterance, streaming);
      },
      release() {
        place.release();
      },
    };
  },
});

async function speakAndHandOn<Code extends RefusalCode>(
  hold: PaymentHold<Code>,
  synthesizer: Synthesizer,
  utterance: Utterance,
  { deadlines, memory, inProgress }: Streaming,
) {
  const deadline = deadlines.begin();
  const endLease = hold.keep?.(() => deadline.abort());
  const end = () => {
    deadline.end();
    endLease?.();
  };
  testPoint('stream held');
  let begun: Begun;
  let speech: Speech;
  try {
    const beginning = synthesizer.synthesize(utterance, deadline.signal);
    [speech, begun] = await inProgress.waitFor(
      speakUntilTaken(beginning, async (given) => [given, await takeAtOnce(given.audio)] as const),
    );
  } catch (error) {
    end();
    testPoint('stream failed');
    await hold.void();
    throw error;
  }
  const { mimeType, upstream } = speech;
  if (begun.outcome === 'whole') {
    const refusal = await captureWhole(hold, upstream).finally(end);
    return refusal ?? delivered({ mimeType, audio: begun.audio, ended: CHARGED });
  }
  const audio = new AudioOutlet(memory);
  // Fastify destroys the stream when the caller leaves; nobody may be listening when it breaks off later.
  audio.on('error', () => {});
  return delivered({ mimeType, audio, ended: forward(begun.audio, audio, { hold, upstream }, deadline).finally(end) });
}

const CHARGED = Promise.resolve(true);
const delivered = (speech: StreamedSpeech) => ({ outcome: 'delivered' as const, delivered: speech });

async function captureWhole<Code extends RefusalCode>(
  hold: PaymentHold<Code>,
  upstream: SpeakingUpstream | undefined,
): Promise<Refused<Code> | undefined> {
  testPoint('whole speech spoken');
  const refusal = await hold.capture(upstream);
  testPoint('whole speech captured');
  return refusal;
}

async function forward(
  source: AsyncIterable<Uint8Array>,
  target: AudioOutlet,
  { hold, upstream }: { readonly hold: PaymentHold; readonly upstream: SpeakingUpstream | undefined },
  deadline: StreamDeadline,
): Promise<boolean> {
  let last: Uint8Array;
  try {
    last = await forwardAllButLastByte(source, target, deadline);
  } catch (error) {
    testPoint('stream broken off');
    await hold.void();
    target.destroy(error as Error);
    return false;
  }
  testPoint('stream spoken');
  try {
    if (await hold.capture(upstream)) throw new SpeechError('TTS_UNAVAILABLE', 'The hold was lost.', true);
    testPoint('stream captured');
    target.finish(last);
    return true;
  } catch (error) {
    target.destroy(error as Error);
    return false;
  }
}

async function forwardAllButLastByte(
  source: AsyncIterable<Uint8Array>,
  target: AudioOutlet,
  deadline: StreamDeadline,
): Promise<Uint8Array> {
  let held: Uint8Array = new Uint8Array();
  let size = 0;
  for await (const chunk of source) {
    if (chunk.length === 0) continue;
    deadline.heard();
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
    const last = chunk.length - 1;
    if (size > 1) target.give(held, chunk.subarray(0, last));
    held = chunk.subarray(last);
  }
  return held;
}
