import type { TtsJob } from '../../contract/types.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { maxAudioBytes, type Shape, validated } from './api.ts';
import { topUpLink } from './card-credits.ts';
import { readMicroUsd } from './catalog.ts';
import { AudioLostError, ServiceError, ServiceUnavailableError, SpeechgateError, UntrustedError } from './errors.ts';
import { boundedCharge, isJob } from './pending-purchase.ts';
import type { Outcome, PaidResponse, Reader } from './retry-until-resolved.ts';
import { audioLostOutcome, codeOf, faultOf, readRefusal, serviceError, traceIdOf } from './service-error.ts';
import { audioStream, audioType, collect, type Receipt, type Speech, streamedSpeech, wholeSpeech } from './speech.ts';
import { pause, withDeadline } from './waiting.ts';

const POLL_MS = 250;
const MAX_POLL_MS = 4_000;
/** Longer than the service's own pauses between attempts; an upstream may ask for longer ones. */
const ATTEMPT_WAIT_MS = 50_000;
const REPEATED_WAIT_MS = 2_000;
const LOOK_AGAIN_SECONDS = 10;
/** The caller waits for it after a cut. */
const BALANCE_TIMEOUT_MS = 5_000;
const JOB: Shape = { status: 'string', traceId: 'string', links: {} };
const NO_ACCOUNT: ReadonlySet<string> = new Set(['no_account', 'unknown_account']);

export const readCard: Reader<Speech> = async (paid) => {
  const { pending, response, body, isRetry } = paid;
  if (!response.ok) return readRefusal(paid, topUpLinkOf(paid));
  const reportedMicroUsd = readMicroUsd(response.headers.get('x-credit-charged'));
  // A repeated job request reports only its own charge, which is 0.
  const chargedMicroUsd = boundedCharge(isRetry && reportedMicroUsd === 0n ? null : reportedMicroUsd, pending);
  const receipt: Receipt = {
    ...receiptOf(paid, chargedMicroUsd),
    balanceMicroUsd: readMicroUsd(response.headers.get('x-credit-balance')),
    identifier: isJob(pending) ? pending.identifier : null,
  };
  if (response.status === 202) {
    const job = validated((await new Response(body).json()) as TtsJob, { jobId: 'string', traceId: 'string' });
    // A job keeps the trace id of the request that has bought it.
    return followJob(job.jobId, { ...receipt, isReplay: isRetry && job.traceId !== receipt.traceId }, paid);
  }
  const confirm = async () => {
    if ((await reportedCharge(paid)) === 0n)
      throw new TypeError('The connection closed before the end of the audio. You were not charged.');
  };
  const audio = failAsLost(audioStream(response, body, confirm), paid);
  return bought(streamedSpeech(audio, audioType(response), receipt));
};

export const receiptOf = ({ pending, response }: CardResponse, chargedMicroUsd: bigint): Receipt => ({
  flow: pending.flow,
  chargedMicroUsd,
  balanceMicroUsd: null,
  identifier: pending.identifier,
  transaction: null,
  isReplay: false,
  traceId: traceIdOf(response),
});

export const bought = (speech: Speech): Outcome<Speech> => ({
  outcome: 'bought',
  bought: speech,
  chargedMicroUsd: speech.receipt.chargedMicroUsd,
});

/** A paid response as the smallest client has it. */
export type CardResponse = Omit<PaidResponse, 'body' | 'service'> & {
  readonly service: Pick<PaidResponse['service'], 'api' | 'baseUrl'>;
};

export function topUpLinkOf({ pending, response, errorBody, service }: CardResponse): string {
  const { amount } = (errorBody ?? {}) as { amount?: unknown };
  const { details } = faultOf(response, errorBody);
  const account = NO_ACCOUNT.has(String(details?.reason)) ? undefined : pending.headers['x-credit-account'];
  return topUpLink(service.baseUrl, {
    ...(typeof amount === 'string' && { amountCents: Number(amount) }),
    ...(account !== undefined && { account }),
  });
}

async function followJob(jobId: string, receipt: Receipt, paid: PaidResponse): Promise<Outcome<Speech>> {
  const { pending, service, signal, isRetry } = paid;
  const deadline = performance.now() + (isRetry ? REPEATED_WAIT_MS : ATTEMPT_WAIT_MS);
  for (let delay = POLL_MS; ; delay = Math.min(delay * 1.5, MAX_POLL_MS)) {
    const params = { path: { jobId } };
    const { data, error, response } = await service.api.GET('/tts/jobs/{jobId}', { params, signal });
    if (!data) {
      const refusal = serviceError(faultOf(response, error));
      if (refusal.status !== 429) throw refusal;
      await pause((refusal.retryAfterSeconds ?? 0) * 1000 + delay, signal);
      continue;
    }
    const { status, links, traceId } = validated(data, JOB);
    if (status === 'failed') {
      const { code, message } = data.error ?? {};
      const fault = {
        status: 502,
        code: codeOf(code),
        message:
          typeof message === 'string' ? serviceWords(message) : 'The job failed. Retry later. You were not charged.',
        // The service has already retried the job.
        details: { transient: false },
        traceId,
        retryAfterSeconds: null,
      };
      return { outcome: 'refused', error: new ServiceUnavailableError(fault) };
    }
    if (status === 'completed') {
      try {
        if (links.audio !== null) return bought(await fetchAudio(links.audio, receipt, paid));
      } catch (error) {
        if (!(error instanceof ServiceError) || (error.status !== 404 && error.status !== 410)) throw error;
      }
      return audioLostOutcome(pending, receipt.chargedMicroUsd);
    }
    const waitsForAttempt = status === 'queued' && typeof data.startedAt === 'string';
    if (waitsForAttempt && performance.now() > deadline) {
      const cause = new SpeechgateError('The service failed once to speak this job. It will try again.');
      return { outcome: 'unknown', cause, retryAfterSeconds: LOOK_AGAIN_SECONDS };
    }
    await pause(delay, signal);
  }
}

/** A cut stream may have been charged: the service refunds only what it could not synthesize (R55). */
export function failAsLost(audio: ReadableStream<Uint8Array>, paid: CardResponse): ReadableStream<Uint8Array> {
  const reader = audio.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (cause) {
        const chargedMicroUsd = paid.signal.aborted ? null : await reportedCharge(paid);
        controller.error(responseLost(paid.pending.maxMicroUsd, cause, chargedMicroUsd));
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** What the account's balance shows of the charge: the price, 0, or null if it can't be told from other purchases. */
async function reportedCharge({ pending, response, service, signal }: CardResponse): Promise<bigint | null> {
  const [heldMicroUsd, priceMicroUsd] = ['x-credit-balance', 'x-credit-charged'].map((name) =>
    readMicroUsd(response.headers.get(name)),
  );
  const accountId = pending.headers['x-credit-account'];
  if (accountId === undefined || heldMicroUsd == null || priceMicroUsd == null) return null;
  const read = (signal: AbortSignal) =>
    service.api.GET('/credits/{accountId}', { params: { path: { accountId } }, signal });
  const { data } = await withDeadline(BALANCE_TIMEOUT_MS, signal, read).catch(() => ({ data: undefined }));
  if (!Number.isSafeInteger(data?.balanceMicroUsd)) return null;
  const balanceMicroUsd = BigInt(Number(data?.balanceMicroUsd));
  if (balanceMicroUsd === heldMicroUsd) return boundedCharge(priceMicroUsd, pending);
  return balanceMicroUsd === heldMicroUsd + priceMicroUsd ? 0n : null;
}

const CUT_OFF = 'The audio ended early and cannot be fetched again.';
const LOST: Readonly<Record<'unknown' | 'free' | 'charged', string>> = {
  unknown: `${CUT_OFF} Check your balance, and use \`durable: true\` next time. You may have been charged.`,
  free: 'The audio ended early. Buy it again. The balance shows that you were not charged.',
  charged: `${CUT_OFF} Use \`durable: true\` next time. The balance shows that you were charged.`,
};

export function responseLost(maxMicroUsd: string, cause: unknown, chargedMicroUsd: bigint | null): AudioLostError {
  const state = chargedMicroUsd === null ? 'unknown' : chargedMicroUsd === 0n ? 'free' : 'charged';
  return new AudioLostError(LOST[state], { chargedMicroUsd, maxMicroUsd: BigInt(maxMicroUsd) }, { cause });
}

/** Fetches a signed link from the client's own origin, whatever host the link names. */
export async function fetchAudio(link: string, receipt: Receipt, paid: PaidResponse): Promise<Speech> {
  const { service, pending, signal } = paid;
  const path = pathOf(link, service.baseUrl) as '/tts/jobs/{jobId}/audio';
  const { response, data, error } = await service.api.GET(path, {
    params: { path: { jobId: '' } },
    parseAs: 'stream',
    maxAudioBytes: maxAudioBytes(pending.body.length),
    signal,
  });
  if (!response.ok) throw serviceError(faultOf(response, error));
  if (!data)
    throw new SpeechgateError(
      'The response of the service has no audio. Resume the purchase. You may have been charged.',
    );
  const bytes = await collect(audioStream(response, data as ReadableStream<Uint8Array>));
  return wholeSpeech(bytes, audioType(response), receipt);
}

function pathOf(link: unknown, baseUrl: string): string {
  const url = typeof link === 'string' && URL.canParse(link) ? new URL(link) : undefined;
  if (url?.protocol === 'https:' || url?.protocol === 'http:') {
    const path = url.pathname + url.search;
    if (new URL(baseUrl + path).origin === baseUrl) return path;
  }
  throw new UntrustedError(
    'malformed',
    'The audio link in the response is not a valid URL. Ask the operator of the service. You may have been charged.',
  );
}
