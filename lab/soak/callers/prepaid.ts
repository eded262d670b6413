import { CHAIN_ID } from '../../../src/sandbox/chain/chain-client.ts';
import { type PrepaidSigner, prepaidSigner } from '../../signers/prepaid-signer.ts';
import { followLink } from './card.ts';
import type { Heard, Sent } from './line.ts';
import { errorOf, mustNotServe, type Open, type Operation, type Outcome, speechRequest } from './operation.ts';
import { drawHangUp, drawId, drawText, priceOf } from './text.ts';
import { deposit, openWallet } from './usdc.ts';

const PATH = '/x402/tts';
/** Largest deposit in micro-USDC. */
const DEPOSIT = 100_000_000;
const VALID_SECONDS = 100;
const MAX_MICRO_USD = 1_000_000n;
/** Retries of a charged request until its audio is available. The audio is stored independently of the capture. */
const MOST_WITHOUT_AUDIO = 5;

/** Known outcome of a request. `charged`: charged, but its audio is no longer available. */
type Known = 'served' | 'refused' | 'charged' | { readonly audio: string };

/** Speech paid from a balance. The caller retries the same request until its outcome is known (R60). */
export const openPrepaid: Open = async ({ world, operation, key }) => {
  const wallet = await openWallet(world, key);
  const bought = await deposit(operation, wallet, DEPOSIT);
  if (bought.end !== 'served') throw new Error('nothing was deposited before the run');
  const name = `${world.env.SERVICE_NAME ?? 'speechgate'}-Prepaid`;
  const domain = { name, version: '1', chainId: CHAIN_ID, verifyingContract: world.payTo };
  const sign = prepaidSigner(wallet.address, `0x${Buffer.from(wallet.key).toString('hex')}`, domain);
  const payer = wallet.address;
  return { customer: { longestPauseMs: 20, buy: (operation) => buy(operation, payer, sign) }, bought };
};

async function buy(operation: Operation, payer: string, sign: PrepaidSigner): Promise<Outcome> {
  const { random } = operation;
  const [text, nonce] = [drawText(random), drawId(random)];
  const does = random.weighted([
    [60, 'pays'],
    [3, 'pays at both'],
    [3, 'hangs up'],
    [2, 'repeats'],
    [2, 'changes the text'],
  ] as const);
  const expiry = BigInt(Math.floor(Date.now() / 1000) + VALID_SECONDS);
  const signed = (sent: Sent): Sent => ({
    ...sent,
    headers: { ...sign(sent.path, sent, { nonce, expiry, max: MAX_MICRO_USD }).headers } as Record<string, string>,
  });
  const sent = signed(speechRequest(PATH, text, random.chance(0.3)));
  const come = (end: Outcome['end']): Outcome => ({
    ...{ flow: 'prepaid', end, amountMicroUsd: priceOf(text), keys: { payer, nonce } },
  });

  const hangUp = does === 'hangs up' ? drawHangUp(random) : undefined;
  const first = hangUp && (await operation.pay(sent, hangUp));
  let withoutAudio = 0;
  const read = (heard: Heard) => {
    const known = operation.hears(heard, text) ? 'served' : readError(heard);
    return known === 'charged' && ++withoutAudio < MOST_WITHOUT_AUDIO ? undefined : known;
  };
  const ask = () => operation.retryUntilResolved(() => operation.pay(sent), read);
  const known =
    first && operation.hears(first, text)
      ? 'served'
      : await (does === 'pays at both' ? both(operation, ask(), ask()) : ask());
  const end = await endOf(operation, known, text, hangUp !== undefined);
  if (end === 'served' && does === 'repeats') await mustNotServe(operation, sent, 'a spent request, repeated');
  if (end === 'served' && does === 'changes the text') {
    await mustNotServe(
      operation,
      signed(speechRequest(PATH, `${text} too`, false)),
      'another request with a spent nonce',
    );
  }
  return come(end);
}

/** Sends the same request twice at once. One is served, the other may get a replay error. */
async function both(operation: Operation, ...asked: Promise<Known | undefined>[]): Promise<Known | undefined> {
  const known = await Promise.all(asked);
  if (known.every((one) => one === 'served')) operation.isWrong('one nonce was served twice');
  return known.find((one) => one === 'served') ?? known.find((one) => typeof one === 'object') ?? known[0];
}

/** Outcome in an error response. Undefined while the caller has to retry. */
function readError(heard: Heard): Known | undefined {
  if (!heard.isWhole || heard.status === 200 || heard.status === 429) return undefined;
  const error = errorOf(heard);
  if (heard.status >= 500) return heard.headers['x-x402-charged'] === '0' ? 'refused' : undefined;
  if (error?.code !== 'PREPAID_NONCE_REPLAYED') return 'refused';
  const { state, audio } = error.details;
  if (typeof audio === 'string') return { audio };
  if (state === 'restored') return 'refused';
  return state === 'charged' ? 'charged' : undefined;
}

/** A caller that disconnected may be charged without audio (R55). All others must receive what they paid for. */
async function endOf(
  operation: Operation,
  known: Known | undefined,
  text: string,
  hasHungUp: boolean,
): Promise<Outcome['end']> {
  if (known === undefined) return 'open';
  if (typeof known === 'object') return (await followLink(operation, known.audio, text)) ? 'served' : 'open';
  if (known !== 'charged') return known;
  if (!hasHungUp) operation.isWrong('the answer did not come whole, and it is charged without audio to be fetched');
  return hasHungUp ? 'left' : 'open';
}
