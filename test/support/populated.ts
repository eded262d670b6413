import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { LocalAccount } from 'viem';
import { claimJob } from '../../src/jobs/claim-job.ts';
import { completeJob, failJob } from '../../src/jobs/end-job.ts';
import { booksClosed } from './books.ts';
import { type TestChain, wallet } from './chain.ts';
import { type TestCheckout, testCheckout } from './checkout.ts';
import { DEPOSIT_PATH, payDeposit, payUnknown } from './deposit.ts';
import { refused } from './facilitator-faults.ts';
import { holdOnCard, holdOnWallet } from './holds.ts';
import { later } from './jobs.ts';
import { domainOf, HELLO, TTS, withCredential } from './prepaid.ts';
import { body, openAiError, silentMp3 } from './stub-upstream.ts';
import { unguarded } from './unguarded.ts';
import { PRICE, payFor, startX402Gateway, type X402Gateway } from './x402.ts';

/** "Hello world" by the default model. */
const BOUGHT = { model: 'provider-a/tts-1', characters: 11, ratePicoUsd: 18_000_000n };
const HOLD_SECONDS = 600;

export type Populated = Awaited<ReturnType<typeof populate>>;

/**
 * A gateway whose database has an entry of each kind in each state, all made by the service itself. The first charge and
 * what came before are two days old. Of the card accounts the first has charges and jobs, of the payers the first has
 * spends; their addresses are in lower case.
 */
export async function populate(t: Test, chain: TestChain) {
  const checkout = await testCheckout(t);
  const gateway = await startX402Gateway(t, chain, checkout.env);
  const card = await buy(gateway, checkout, 900);
  const otherCard = await buy(gateway, checkout, 700);
  await checkout.pay(await open(gateway, 600));
  await open(gateway, 800);
  await speak(gateway, card, 200);
  await booksClosed(gateway.db);
  await unguarded(gateway.db, async (db) => {
    await sql`
      update transfer set created_at = created_at - interval '2 days', ended_at = ended_at - interval '2 days'`.execute(
      db,
    );
  });
  await speak(gateway, card, 200);
  await speak(gateway, otherCard, 200);
  await failing(gateway, () => speak(gateway, card, 502));

  const mining = setInterval(() => void chain.client.mine({ blocks: 1 }), 50);
  const [payer, otherPayer] = [await wallet(chain.client, 10_000_000n), await wallet(chain.client, 10_000_000n)];
  for (const depositor of [payer, otherPayer]) {
    assert.equal((await payDeposit(gateway, depositor)).reply.status, 200, DEPOSIT_PATH);
  }
  clearInterval(mining);
  await spend(gateway, payer, 'posted', 200);
  await failing(gateway, () => spend(gateway, payer, 'voided', 502));

  // Failed for good, as if its authorization had ended long ago, instead of leading the chain's clock away.
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  assert.equal((await payFor(gateway, otherPayer)).reply.status, 402);
  await unguarded(gateway.db, (db) =>
    sql`update x402_payment set valid_before = 1 where state = 'refused'`.execute(db),
  );
  await gateway.app.reconcilers.turn();
  // The turn has credited the purchase that was paid; this one is on its way for ever.
  await checkout.pay(await open(gateway, 500));
  for (const from of [payer, otherPayer]) assert.equal((await payFor(gateway, from)).reply.status, 200);
  await payUnknown(gateway, chain, () => payFor(gateway, payer));
  const third = await wallet(chain.client, 10_000_000n);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  assert.equal((await payFor(gateway, third)).reply.status, 402);

  const jobs = {
    completed: await job(gateway, card),
    failed: await job(gateway, card),
    processing: await job(gateway, card),
    queued: await job(gateway, card),
  };
  for (const state of ['completed', 'failed', 'processing'] as const) {
    const claim = await claimJob(gateway.db, jobs[state]);
    assert.ok(claim);
    if (state === 'completed') await completeJob(gateway.db, claim, { mimeType: 'audio/mpeg', sizeBytes: 1 }, 600);
    if (state === 'failed') await failJob(gateway.db, claim, { code: 'TTS_UNAVAILABLE', message: 'x' }, 600);
  }
  await booksClosed(gateway.db);
  const bought = () => ({ ...BOUGHT, traceId: randomUUID() });
  const address = payer.address.toLowerCase();
  assert.equal((await holdOnCard(gateway.db, card, PRICE, HOLD_SECONDS, { usage: bought() })).outcome, 'placed');
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const terms = { address, nonce: 'pending', expiry, amountMicroUsd: PRICE, isWithinMaximum: true, usage: bought() };
  assert.equal((await holdOnWallet(gateway.db, terms, HOLD_SECONDS)).outcome, 'placed');
  return { gateway, checkout, card, otherCard, payer: address, otherPayer: otherPayer.address.toLowerCase(), jobs };
}

/** Opens a purchase, and tells where it is paid. */
async function open(gateway: X402Gateway, cents: number): Promise<string> {
  const { status, headers } = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `amount=${cents}`,
  });
  assert.equal(status, 303);
  return headers.get('location') ?? '';
}

async function buy(gateway: X402Gateway, checkout: TestCheckout, cents: number): Promise<string> {
  const { pathname, search } = new URL(await checkout.pay(await open(gateway, cents)));
  assert.equal((await gateway.call(pathname + search)).status, 200);
  const { account_id } = await gateway.db
    .selectFrom('top_up')
    .select('account_id')
    .where('amount_cents', '=', cents)
    .executeTakeFirstOrThrow();
  return account_id;
}

async function speak(gateway: X402Gateway, account: string, status: number): Promise<void> {
  const reply = await gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  assert.equal(reply.status, status, reply.text);
}

async function spend(gateway: X402Gateway, payer: LocalAccount, nonce: string, status: number): Promise<void> {
  const reply = await gateway.call(TTS, await withCredential(payer, domainOf(gateway.payTo), TTS, HELLO, { nonce }));
  assert.equal(reply.status, status, reply.text);
}

async function job(gateway: X402Gateway, account: string): Promise<string> {
  return (await later(gateway, account)).json.jobId;
}

async function failing({ upstream }: X402Gateway, request: () => Promise<void>): Promise<void> {
  upstream.mode = openAiError(400);
  await request();
  upstream.mode = body(silentMp3(1000));
}
