import { setTimeout as sleep } from 'node:timers/promises';
import type { World } from '../world/world.ts';
import type { Open } from './flow.ts';
import type { Heard } from './line.ts';
import { isPassing, type Operation, type Outcome } from './operation.ts';

/** Of a caller who spends it all through the run: the most that the service sells at once. */
export const CENTS_OF_A_CALLER = 100_000;
const MICRO_USD_PER_CENT = 10_000n;
const ACCOUNT = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/;
const AGAIN_MS = 500;
const PATIENCE_MS = 300_000;

interface Purchase extends Outcome {
  readonly keys: { readonly payer: string; readonly sessionId: string };
}

/** Purchases of credit: most buyers return to the page, in one tab or two, some close it, some never pay. */
export const openTopUp: Open = async ({ world }) => ({
  customer: {
    longestPauseMs: 400,
    buy: async (operation) => {
      const { random } = operation;
      const cents = random.between(500, 2_000);
      const does = random.weighted([
        [6, 'returns'],
        [2, 'opens two tabs'],
        [2, 'closes the page'],
        [1, 'never pays'],
      ] as const);
      const checkout = await openCheckout(operation, cents);
      if (checkout === undefined) return outcome('top-up', 'open', 0n);
      if (does === 'never pays') return outcome('top-up', 'left', 0n);
      const back = new URL(await world.processor.pay(checkout));
      if (does === 'closes the page') return outcome('top-up', 'left', BigInt(cents), { sessionId: sessionOf(back) });
      return complete(operation, back, cents, does === 'opens two tabs');
    },
  },
  bought: [],
});

/** Purchases that are refunded or disputed at the processor, before or after the buyer has returned. */
export const openClawback: Open = async ({ world }) => ({
  customer: {
    longestPauseMs: 1_000,
    buy: async (operation) => {
      const { random } = operation;
      const cents = random.between(500, 2_000);
      const isRefund = random.chance(0.6);
      const flow = isRefund ? 'refund' : 'dispute';
      const isEarly = random.chance(0.3);
      const checkout = await openCheckout(operation, cents);
      if (checkout === undefined) return outcome(flow, 'open', 0n);
      const back = new URL(await world.processor.pay(checkout));
      if (isEarly) await takeBack(world, operation, sessionOf(back), cents, isRefund);
      const bought = await complete(operation, back, cents, false);
      if (!isEarly) await takeBack(world, operation, sessionOf(back), cents, isRefund);
      return { ...bought, flow };
    },
  },
  bought: [],
});

/** Buys credit for a new account, and repeats each step until it is there. */
export async function buyCredit(world: World, operation: Operation, cents: number): Promise<Purchase> {
  const checkout = await openCheckout(operation, cents);
  if (checkout === undefined) throw new Error('no checkout was opened before the run');
  const bought = await complete(operation, new URL(await world.processor.pay(checkout)), cents, false);
  if (bought.end !== 'served')
    throw new Error(`credit was not bought before the run: ${operation.wrong ?? bought.end}`);
  return bought as Purchase;
}

/** The hosted page of a purchase; the buyer presses the button again where that failed. */
function openCheckout(operation: Operation, cents: number): Promise<string | undefined> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  return operation.pursue(
    () => operation.ask({ method: 'POST', path: '/top-up', headers, body: `amount=${cents}` }),
    ({ status, headers }) => (status === 303 ? headers.location : undefined),
  );
}

/** The buyer returns to the page, loads it again where it failed, and reads the account there. */
async function complete(operation: Operation, back: URL, cents: number, isTwice: boolean): Promise<Outcome> {
  const sessionId = sessionOf(back);
  const load = () =>
    operation.pursue(() => operation.ask({ method: 'GET', path: back.pathname + back.search }), readPage);
  const [page, other] = isTwice ? await Promise.all([load(), load()]) : [await load()];
  if (page === undefined) return outcome('top-up', 'open', BigInt(cents), { sessionId });
  const payer = ACCOUNT.exec(page.body.toString())?.[0];
  if (page.status !== 200 || payer === undefined) operation.isWrong(`a paid purchase was answered with ${page.status}`);
  if (other && ACCOUNT.exec(other.body.toString())?.[0] !== payer) operation.isWrong('two tabs name two accounts');
  return outcome('top-up', payer === undefined ? 'open' : 'served', BigInt(cents), {
    sessionId,
    ...(payer !== undefined && { payer }),
  });
}

/** The page of the purchase. That it is not paid, or unknown, may be told while the processor is away. */
const readPage = (heard: Heard): Heard | undefined =>
  isPassing(heard) || heard.status === 402 || heard.status === 404 ? undefined : heard;

const sessionOf = (back: URL): string => back.searchParams.get('session_id') ?? '';

/** Refunds or disputes a part or all of it, and lets that come out one way or the other. */
async function takeBack(
  { processor }: World,
  { random }: Operation,
  session: string,
  cents: number,
  isRefund: boolean,
): Promise<void> {
  if (isRefund) {
    const status = random.pick(['succeeded', 'pending'] as const);
    const amountCents = random.chance(0.5) ? cents : random.between(1, cents - 1);
    const end = random.pick(['succeeded', 'failed', 'pending'] as const);
    const { id } = await persist(() => processor.refund({ session, amountCents, status }));
    if (status === 'pending' && end !== 'pending') await persist(() => processor.settleRefund(id, end));
    return;
  }
  const end = random.pick(['won', 'lost', 'needs_response'] as const);
  const { id } = await persist(() => processor.openDispute({ session }));
  if (end !== 'needs_response') await persist(() => processor.updateDispute(id, end));
}

/** The processor may be away for a moment. */
async function persist<T>(ask: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + PATIENCE_MS; ; await sleep(AGAIN_MS)) {
    try {
      return await ask();
    } catch (error) {
      if (performance.now() > giveUpAt) throw error;
    }
  }
}

const outcome = (flow: Outcome['flow'], end: Outcome['end'], cents: bigint, keys: Outcome['keys'] = {}): Outcome => ({
  ...{ flow, end, keys, amountMicroUsd: cents * MICRO_USD_PER_CENT },
});
