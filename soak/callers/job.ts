import { setTimeout as sleep } from 'node:timers/promises';
import { jsonPost } from './card.ts';
import { drawId } from './draws.ts';
import type { Open } from './flow.ts';
import type { Heard } from './line.ts';
import { isPassing, jsonOf, type Operation, type Outcome } from './operation.ts';
import { drawText, priceOf } from './text.ts';
import { buyCredit, CENTS_OF_A_CALLER } from './top-up.ts';

const FIRST_LOOK_MS = 15;
/** Share of jobs whose audio is not kept. */
const UNSTORED = 0.1;
const MISUSED = 0.05;

/** Jobs with a key, repeated until accepted, asked for until they have ended, whose audio is fetched. */
export const openJob: Open = async ({ world, operation }) => {
  const bought = await buyCredit(world, operation, CENTS_OF_A_CALLER);
  const account = bought.keys.payer;
  return { customer: { longestPauseMs: 20, buy: (operation) => buy(operation, account) }, bought: [bought] };
};

async function buy(operation: Operation, account: string): Promise<Outcome> {
  const { random } = operation;
  const [text, key, storeAudio] = [drawText(random), drawId(random), !random.chance(UNSTORED)];
  const headers = { 'x-credit-account': account, 'idempotency-key': key };
  const sent = jsonPost('/tts?async=true', { text, storeAudio }, headers);
  const come = (end: Outcome['end'], jobId?: string): Outcome => ({
    ...{ flow: 'job', end, amountMicroUsd: priceOf(text) },
    keys: { payer: account, ...(jobId !== undefined && { jobId }) },
  });

  const accept = () => operation.pursue(() => operation.pay(sent), read);
  const [accepted, second] = random.chance(MISUSED) ? await Promise.all([accept(), accept()]) : [await accept()];
  if (accepted === undefined) return come('open');
  if (accepted.status !== 202) return come('refused');
  const { jobId } = jsonOf(accepted) as { jobId: string };
  if (second && jsonOf(second)?.jobId !== jobId) operation.isWrong('one key made two jobs');
  if (random.chance(MISUSED)) {
    const other = await operation.pursue(
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

/** Looks at the job until it has ended; undefined when that was not in time. */
async function follow(operation: Operation, jobId: string): Promise<string | undefined> {
  await sleep(FIRST_LOOK_MS);
  return operation.pursue(
    () => operation.ask({ method: 'GET', path: `/tts/jobs/${jobId}` }),
    (heard) => {
      if (isPassing(heard)) return undefined;
      if (heard.status !== 200) operation.isWrong(`an accepted job was answered with ${heard.status}`);
      const status = String(jsonOf(heard)?.status);
      return status === 'completed' || status === 'failed' ? status : undefined;
    },
  );
}

/** False when the audio of a completed job did not come. */
async function fetchAudio(operation: Operation, jobId: string, text: string): Promise<boolean> {
  const link = await operation.pursue(
    () => operation.ask({ method: 'GET', path: `/tts/jobs/${jobId}` }),
    (heard) => (jsonOf(heard) as { links?: { audio?: string } } | undefined)?.links?.audio,
  );
  if (link === undefined) return false;
  return followLink(operation, link, text);
}

/**
 * Fetches what a link leads to, from whichever gateway; false when it is not the speech of the text. A gateway whose clock
 * is ahead takes the link for one that has expired: the other one knows better.
 */
export async function followLink(operation: Operation, link: string, text: string): Promise<boolean> {
  const { pathname, search } = new URL(link);
  const heard = await operation.pursue(
    () => operation.ask({ method: 'GET', path: pathname + search }),
    (heard) => (heard.status === 401 ? undefined : read(heard)),
  );
  const hasCome = heard !== undefined && operation.hears(heard, text);
  if (heard && !hasCome) operation.isWrong(`audio that is paid was answered with ${heard.status}`);
  return hasCome;
}
