import { setTimeout as sleep } from 'node:timers/promises';
import type { Heard } from './line.ts';
import { isPassing, jsonOf, jsonPost, type Open, type Operation, type Outcome, speechRequest } from './operation.ts';
import { drawHangUp, drawId, drawText, priceOf, SLOWLY } from './text.ts';
import { buyCredit, CENTS_OF_A_CALLER } from './top-up.ts';

const HANG_UPS = 0.03;
const STREAMED = 0.15;
const FIRST_LOOK_MS = 15;
const UNSTORED = 0.1;
const MISUSED = 0.05;

/** Callers who pay from credit that they buy before. */
function opening(buy: (operation: Operation, account: string) => Promise<Outcome>): Open {
  return async ({ world, operation }) => {
    const bought = await buyCredit(world, operation, CENTS_OF_A_CALLER);
    return { customer: { longestPauseMs: 20, buy: (operation) => buy(operation, bought.keys.payer) }, bought };
  };
}

/** Speech paid by card, buffered or streamed. The caller cannot retry such a request; an error means no charge. */
export const openCard = opening(buySpeech);

async function buySpeech(operation: Operation, account: string): Promise<Outcome> {
  const { random } = operation;
  const isStreamed = random.chance(STREAMED);
  const text = isStreamed ? `${SLOWLY} ${drawText(random)}` : drawText(random);
  const heard = await operation.pay(
    speechRequest('/tts', text, random.chance(0.3), { 'x-credit-account': account }),
    drawHangUp(random, HANG_UPS),
  );
  const end = endOf(operation, heard, text);
  if (end === 'broken off' && heard.isWhole) operation.isWrong('the answer ended before the speech did');
  return { flow: isStreamed ? 'card, streamed' : 'card', end, amountMicroUsd: priceOf(text), keys: { payer: account } };
}

function endOf(operation: Operation, heard: Heard, text: string): Outcome['end'] {
  if (operation.hears(heard, text)) return 'served';
  if (heard.status >= 400 || heard.isUnsent) return 'refused';
  return heard.hasHungUp ? 'left' : 'broken off';
}

/** Jobs with an idempotency key: retried until accepted, polled until they end. Then the caller fetches the audio. */
export const openJob = opening(buyJob);

async function buyJob(operation: Operation, account: string): Promise<Outcome> {
  const { random } = operation;
  const [text, key, storeAudio] = [drawText(random), drawId(random), !random.chance(UNSTORED)];
  const headers = { 'x-credit-account': account, 'idempotency-key': key };
  const sent = jsonPost('/tts?async=true', { text, storeAudio }, headers);
  const come = (end: Outcome['end'], jobId?: string): Outcome => ({
    ...{ flow: 'job', end, amountMicroUsd: priceOf(text) },
    keys: { payer: account, ...(jobId !== undefined && { jobId }) },
  });

  const accept = () => operation.retryUntilResolved(() => operation.pay(sent), read);
  const [accepted, second] = random.chance(MISUSED) ? await Promise.all([accept(), accept()]) : [await accept()];
  if (accepted === undefined) return come('open');
  if (accepted.status !== 202) return come('refused');
  const { jobId } = jsonOf(accepted) as { jobId: string };
  if (second && jsonOf(second)?.jobId !== jobId) operation.isWrong('one key made two jobs');
  if (random.chance(MISUSED)) {
    const other = await operation.retryUntilResolved(
      () => operation.pay(jsonPost(sent.path, { text: `${text} too` }, headers)),
      read,
    );
    if (other?.status === 202) operation.isWrong('another request with the key of a job was accepted');
  }
  const state = await follow(operation, jobId);
  if (state !== 'completed') return come(state === 'failed' ? 'refused' : 'open', jobId);
  if (!storeAudio) return come('served', jobId);
  return come((await fetchAudio(operation, jobId, text)) ? 'served' : 'open', jobId);
}

const read = (heard: Heard) => (isPassing(heard) ? undefined : heard);

/** Polls the job until it ends. @returns its final state, or undefined after the timeout */
async function follow(operation: Operation, jobId: string): Promise<string | undefined> {
  await sleep(FIRST_LOOK_MS);
  return operation.retryUntilResolved(
    () => operation.ask({ method: 'GET', path: `/tts/jobs/${jobId}` }),
    (heard) => {
      if (isPassing(heard)) return undefined;
      if (heard.status !== 200) operation.isWrong(`an accepted job was answered with ${heard.status}`);
      if (heard.status === 404) return 'failed';
      const status = String(jsonOf(heard)?.status);
      return status === 'completed' || status === 'failed' ? status : undefined;
    },
  );
}

/** @returns false when the audio of a completed job is unavailable */
async function fetchAudio(operation: Operation, jobId: string, text: string): Promise<boolean> {
  const link = await operation.retryUntilResolved(
    () => operation.ask({ method: 'GET', path: `/tts/jobs/${jobId}` }),
    (heard) => (jsonOf(heard) as { links?: { audio?: string } } | undefined)?.links?.audio,
  );
  if (link === undefined) return false;
  return followLink(operation, link, text);
}

/**
 * Fetches linked audio from either gateway. A gateway whose clock is ahead may call the link expired, so it retries.
 * @returns false when the response is not the speech of the text
 */
export async function followLink(operation: Operation, link: string, text: string): Promise<boolean> {
  const { pathname, search } = new URL(link);
  const heard = await operation.retryUntilResolved(
    () => operation.ask({ method: 'GET', path: pathname + search }),
    (heard) => (heard.status === 401 ? undefined : read(heard)),
  );
  const hasCome = heard !== undefined && operation.hears(heard, text);
  if (heard && !hasCome) operation.isWrong(`audio that is paid was answered with ${heard.status}`);
  return hasCome;
}
