import { setTimeout as sleep } from 'node:timers/promises';
import type { Service } from '../world/world.ts';
import type { Heard } from './line.ts';
import { isPassing, type Open, type Operation, type Outcome } from './operation.ts';

/** Credit of a caller for the whole run: the service's maximum for one purchase. */
export const CENTS_OF_A_CALLER = 100_000;
const MICRO_USD_PER_CENT = 10_000n;
const ACCOUNT = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/;
const AGAIN_MS = 500;
const TIMEOUT_MS = 300_000;

interface Purchase extends Outcome {
  readonly keys: { readonly payer: string; readonly sessionId: string };
}

/** Purchases of credit. Most buyers return to the page, in one tab or two. Some close it, some never pay. */
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
});

/** Purchases with a refund or dispute at the processor, before or after the buyer returns. */
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
      if (isEarly) await applyClawback(world, operation, sessionOf(back), cents, isRefund);
      const bought = await complete(operation, back, cents, false);
      if (!isEarly) await applyClawback(world, operation, sessionOf(back), cents, isRefund);
      return { ...bought, flow };
    },
  },
});

/** Buys credit for a new account and retries each step. */
export async function buyCredit(world: Service, operation: Operation, cents: number): Promise<Purchase> {
  const checkout = await openCheckout(operation, cents);
  if (checkout === undefined) throw new Error('no checkout was opened before the run');
  const bought = await complete(operation, new URL(await world.processor.pay(checkout)), cents, false);
  if (bought.end !== 'served')
    throw new Error(`credit was not bought before the run: ${operation.wrong ?? bought.end}`);
  return bought as Purchase;
}

/** Opens the hosted page. The buyer retries on errors. @returns its URL */
function openCheckout(operation: Operation, cents: number): Promise<string | undefined> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  return operation.retryUntilResolved(
    () => operation.ask({ method: 'POST', path: '/top-up', headers, body: `amount=${cents}` }),
    ({ status, headers }) => (status === 303 ? headers.location : undefined),
  );
}

/** The buyer returns to the page, reloads it on errors, and reads the account. */
async function complete(operation: Operation, back: URL, cents: number, isTwice: boolean): Promise<Outcome> {
  const sessionId = sessionOf(back);
  const load = () =>
    operation.retryUntilResolved(() => operation.ask({ method: 'GET', path: back.pathname + back.search }), readPage);
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

/** The page may report an unpaid or unknown purchase while the processor is unavailable. */
const readPage = (heard: Heard): Heard | undefined =>
  isPassing(heard) || heard.status === 402 || heard.status === 404 ? undefined : heard;

const sessionOf = (back: URL): string => back.searchParams.get('session_id') ?? '';

/** Creates a refund or a dispute and resolves it in a random way. */
async function applyClawback(
  { processor }: Service,
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

/** Retries while the processor is unavailable. */
async function persist<T>(ask: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + TIMEOUT_MS; ; await sleep(AGAIN_MS)) {
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
