/**
 * While callers pay by every flow, `report` and `audit --external` find nothing wrong. LIVE_SECONDS says for how long, 60
 * where it is not set.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { sell } from '../../test/payments/top-up/refunded.ts';
import { form } from '../../test/payments/top-up/shop.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { mineSteadily, payDeposit } from '../../test/support/deposit.ts';
import { operatorCommand } from '../../test/support/operator-command.ts';
import { domainOf, HELLO, TTS, withCredential } from '../../test/support/prepaid.ts';
import { payFor, startX402Gateway } from '../../test/support/x402.ts';

const { chain, skip } = await testChain();

const SECONDS = Number(process.env.LIVE_SECONDS ?? 60);
const PER_SECOND = 5;
/** As on Base: for as long, a transfer of speech is booked and its block not yet confirmed. */
const BLOCK_MS = 2_000;
const PAUSE_MS = 3_000;
/** A line of `report`. */
const DIFFERENCE = /^ {2}\S+ {2}(transfer|payment|purchase|refund|dispute) \S+: (.*)$/gm;

test('report and audit --external hold while callers pay by every flow', { skip }, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startX402Gateway(t, chain, { ...checkout.env, RECONCILE_INTERVAL_MS: '15000' });
  mineSteadily(t, chain, BLOCK_MS);
  const { databaseUrl, payTo, facilitator } = gateway;
  const env = {
    ...{ ...checkout.env, DATABASE_URL: databaseUrl, X402_PAY_TO: payTo, X402_FACILITATOR_URL: facilitator.url },
    X402_RPC_URL: chain.rpcUrl,
  };
  const { account } = await sell(gateway, checkout, 10_000);
  const payer = await wallet(chain.client, 1_000_000_000n);
  t.equal((await payDeposit(gateway, payer, 1_000_000)).reply.status, 200);
  const card = () => gateway.call(TTS.replace('/x402', ''), { ...HELLO, headers: { 'x-credit-account': account } });
  const prepaid = async () => gateway.call(TTS, await withCredential(payer, domainOf(payTo), TTS, HELLO));
  const direct = async () => (await payFor(gateway, payer)).reply;
  const deposit = async () => (await payDeposit(gateway, payer)).reply;
  const bought = async (by?: 'bank') => {
    const opened = await gateway.call('/top-up', form({ amount: '500' }));
    const checkoutUrl = opened.headers.get('location') ?? '';
    await checkout.pay(checkoutUrl, '', by);
    return { reply: opened, session: checkoutUrl.split('/').at(-1) ?? '' };
  };
  const flows: Readonly<Record<string, () => Promise<{ readonly status: number }>>> = {
    ...{ card, direct, prepaid, deposit },
    'direct again': direct,
    'card again': card,
    'purchase without return': async () => (await bought()).reply,
    'purchase by bank, refunded': async () => {
      const { reply, session } = await bought('bank');
      await checkout.endBankPayment(session, 'arrived');
      await checkout.refund({ session, amountCents: 100 });
      return reply;
    },
    'purchase, disputed': async () => {
      const { session } = await sell(gateway, checkout, 700);
      await checkout.openDispute({ session, amountCents: 200 });
      return { status: 303 };
    },
  };

  const end = Date.now() + SECONDS * 1000;
  const counts = new Map<string, number>();
  const count = (what: string) => void counts.set(what, (counts.get(what) ?? 0) + 1);
  const failures: string[] = [];
  const running = new Set<Promise<void>>();
  const begin = (name: string, flow: () => Promise<{ readonly status: number }>) => {
    const work = flow()
      .then(({ status }) => count(`${name} answered ${status}`))
      .catch((error) => void failures.push(`${name}: ${error.stack}`))
      .finally(() => running.delete(work));
    running.add(work);
  };
  const call = async () => {
    const names = Object.keys(flows);
    for (let at = 0; Date.now() < end; at++) {
      const name = names[at % names.length] as string;
      begin(name, flows[name] as () => Promise<{ readonly status: number }>);
      await sleep(1000 / PER_SECOND);
    }
    await Promise.all(running);
  };
  const check = async (...words: [string, ...string[]]) => {
    for (; Date.now() < end; await sleep(PAUSE_MS)) {
      const { code, output } = await operatorCommand(env, ...words);
      count(`${words[0]} ended with ${code}`);
      for (const [, what, reason] of output.matchAll(DIFFERENCE)) count(`${what}: ${reason?.replace(/\d.*/, '…')}`);
      t.equal(code, 0, `${words.join(' ')} finds nothing wrong`, { output });
    }
  };
  const from = new Date().toISOString().slice(0, 10);
  await Promise.all([call(), check('report', '--from', from), check('audit', '--external')]);
  for (const [what, times] of [...counts].sort()) console.error(`${times} ${what}`);
  t.strictSame(failures, []);
});
