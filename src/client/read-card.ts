import type { TtsJob } from '../contract/types.ts';
import { serviceWords } from '../lib/service-words.ts';
import { JOB_TARGET } from './card-credits.ts';
import { AudioLostError, ServiceError, ServiceUnavailableError } from './errors.ts';
import { fetchAudio } from './fetch-audio.ts';
import type { Answer, Outcome, Reader } from './outcome.ts';
import type { Service } from './payment-way.ts';
import { chargedWithin, type PendingPurchase } from './pending-purchase.ts';
import { readMicroUsd } from './price.ts';
import { lostAudio, readRefusal } from './read-refusal.ts';
import { codeOf, faultOf, serviceError, traceIdOf } from './service-error.ts';
import { type Shape, shaped } from './shape.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, streamedSpeech } from './speech-of.ts';
import { topUpLink } from './top-up.ts';
import { pause } from './waiting.ts';

/** Milliseconds between two looks at a job. */
const POLL_MS = 250;
const JOB: Shape = { status: 'string', traceId: 'string', links: {} };
/** Reasons of a 402 that name no account. */
const NO_ACCOUNT: ReadonlySet<string> = new Set(['no_account', 'unknown_account']);

export const isJob = ({ target }: PendingPurchase): boolean => target === JOB_TARGET;

/** What the answer to a card request tells: its audio as it is spoken, or a job, which is followed to its end. */
export const readCard: Reader<Speech> = async (asked) => {
  const { pending, answer, isRepetition, service, signal } = asked;
  const { response, body } = answer;
  if (!response.ok) return readRefusal(asked, linkOf(pending, answer, service));
  const told = readMicroUsd(response.headers.get('x-credit-charged'));
  // The job of an earlier request: what is told is what this one has charged.
  const chargedMicroUsd = chargedWithin(isRepetition && told === 0n ? null : told, pending);
  const receipt: Receipt = {
    flow: 'card',
    chargedMicroUsd,
    balanceMicroUsd: readMicroUsd(response.headers.get('x-credit-balance')),
    identifier: isJob(pending) ? pending.identifier : null,
    transaction: null,
    isReplay: false,
    traceId: traceIdOf(response),
  };
  if (response.status === 202) {
    const { jobId } = shaped((await new Response(body).json()) as TtsJob, { jobId: 'string' });
    return followJob(jobId, receipt, pending, { service, signal });
  }
  const speech = streamedSpeech(breakable(audioStream(response, body), pending), audioType(response), receipt);
  return { outcome: 'bought', bought: speech, chargedMicroUsd };
};

/** Where the missing credit is bought: for the same account, if there is such an account. */
function linkOf(pending: PendingPurchase, { response, error }: Answer, { baseUrl }: Service): string {
  const { amount } = (error ?? {}) as { amount?: unknown };
  const { details } = faultOf(response, error);
  const account = NO_ACCOUNT.has(String(details?.reason)) ? undefined : pending.headers['x-credit-account'];
  return topUpLink(baseUrl, {
    ...(typeof amount === 'string' && { amountCents: Number(amount) }),
    ...(account !== undefined && { account }),
  });
}

/** Looks at the job until it has ended. A failed one was refunded. */
async function followJob(
  jobId: string,
  receipt: Receipt,
  pending: PendingPurchase,
  { service, signal }: { readonly service: Service; readonly signal: AbortSignal },
): Promise<Outcome<Speech>> {
  for (;;) {
    const { data, error, response } = await service.api.GET('/tts/jobs/{jobId}', {
      params: { path: { jobId } },
      signal,
    });
    if (!data) throw serviceError(faultOf(response, error));
    const { status, links, traceId } = shaped(data, JOB);
    if (status === 'failed') {
      const { code, message } = data.error ?? {};
      const fault = {
        status: 502,
        code: codeOf(code),
        message: typeof message === 'string' ? serviceWords(message) : 'The job failed.',
        // The service has tried it again itself for as long as that was of use.
        details: { transient: false },
        traceId,
        retryAfterSeconds: null,
      };
      return { outcome: 'refused', error: new ServiceUnavailableError(fault) };
    }
    if (status === 'completed') return audioOf(links.audio, receipt, pending, { service, signal });
    await pause(POLL_MS, signal);
  }
}

async function audioOf(
  link: string | null,
  receipt: Receipt,
  pending: PendingPurchase,
  parts: { readonly service: Service; readonly signal: AbortSignal },
): Promise<Outcome<Speech>> {
  const { chargedMicroUsd } = receipt;
  try {
    if (link !== null)
      return { outcome: 'bought', bought: await fetchAudio(link, receipt, { ...parts, pending }), chargedMicroUsd };
  } catch (error) {
    if (!(error instanceof ServiceError) || (error.status !== 404 && error.status !== 410)) throw error;
  }
  return lostAudio(pending, chargedMicroUsd);
}

/** A stream that breaks off may have been charged: the service gives back what it could not speak, and no more (R55). */
function breakable(audio: ReadableStream<Uint8Array>, { maxMicroUsd }: PendingPurchase): ReadableStream<Uint8Array> {
  const reader = audio.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (cause) {
        controller.error(answerLost(maxMicroUsd, cause));
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** A card request without `durable` whose answer was lost. */
export const answerLost = (maxMicroUsd: string, cause: unknown): AudioLostError =>
  new AudioLostError(
    'The answer broke off. It may have been charged, and cannot be asked for again; `durable: true` can.',
    { chargedMicroUsd: null, maxMicroUsd: BigInt(maxMicroUsd) },
    { cause },
  );
