import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { LocalAccount } from 'viem';
import type { X402Config } from '../../src/config/x402-settings.ts';
import { audit } from '../../src/ledger/audit.ts';
import { openPayments } from '../../src/payments/x402/resolver.ts';
import { recordTransfer } from '../../src/payments/x402/unrecorded-transfers.ts';
import { settleReceived } from '../../src/reconcile/received.ts';
import { included, signAuthorization, submitAuthorization, testChain, wallet } from '../support/chain.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { narrow as allowing, failing, startRpcNode } from '../support/rpc-node.ts';

const { skip, chain } = await testChain();
const PAYEE = '0x00000000000000000000000000000000000000b2';
const AMOUNT = 150_000n;

/** A database with the payments of a payee, and nodes that show them. */
async function scene(t: Test, urls: readonly [string, ...string[]] = [chain.rpcUrl]) {
  const since = new Date(Date.now() - 1000);
  const gateway = await startGateway(t, { X402_PAY_TO: PAYEE, X402_RPC_URL: urls.join(',') });
  const config = gateway.config.x402 as X402Config;
  const payments = openPayments(gateway.db, config.asset, urls);
  t.teardown(() => payments.chain.close());
  const payer = await wallet(chain.client, 10_000_000n);
  const look = () => settleReceived({ db: gateway.db, payments, ...config }, since);
  const ofPayer = async () => {
    const { known, open, unrecorded, others } = await look();
    const count = (transfers: readonly { payer: string }[]) =>
      transfers.filter((transfer) => transfer.payer === payer.address.toLowerCase()).length;
    return { known: count(known), open: count(open), unrecorded: count(unrecorded), others: count(others) };
  };
  return { gateway, payments, asset: config.asset, payer, look, ofPayer };
}

/** Pays the payee on the chain, two blocks deep. */
async function land(payer: LocalAccount, value = AMOUNT) {
  const signed = await signAuthorization(payer, { to: PAYEE, value });
  const transaction = await included(
    chain.client,
    submitAuthorization(chain.client, await wallet(chain.client), signed),
  );
  await chain.client.mine({ blocks: 1 });
  return { nonce: signed.authorization.nonce, transaction };
}

/** The row of a payment as it was when the backup was made. */
async function row({ db, config }: Gateway, payer: LocalAccount, nonce: string, columns: Record<string, unknown>) {
  const { asset } = config.x402 as X402Config;
  await db
    .insertInto('x402_payment')
    .values({
      ...{
        identifier: `pay_${randomUUID()}`,
        purpose: 'deposit',
        request_hash: Buffer.alloc(32),
        nonce,
        pay_to: PAYEE,
      },
      ...{ network: asset.network, asset: asset.address.toLowerCase(), payer: payer.address.toLowerCase() },
      ...{ amount_micro_usd: AMOUNT, valid_before: 4_000_000_000n, head_block: 0n },
      ...columns,
    })
    .execute();
}

const PAST = sql<Date>`now() - interval '1 minute'`;
const AHEAD = sql<Date>`now() + interval '5 seconds'`;

for (const [name, columns, found] of [
  ['a reservation that was settled after the backup', { lease_until: PAST }, { known: 1, open: 0 }],
  ['a payment with unknown outcome', { state: 'unknown', settling_at: PAST }, { known: 1, open: 0 }],
  ['a failed payment', { state: 'failed', settling_at: PAST, failed_at: PAST }, { known: 1, open: 0 }],
  ['a payment in progress', { lease_until: AHEAD }, { known: 0, open: 1 }],
  [
    'a payment of another amount',
    { state: 'unknown', settling_at: PAST, amount_micro_usd: AMOUNT + 1n },
    { known: 0, open: 1 },
  ],
] as const) {
  test(`a transfer of ${name} is ${found.known ? 'settled' : 'left alone'}`, { skip }, async (t) => {
    const { gateway, payer, ofPayer } = await scene(t);
    const { nonce } = await land(payer);
    await row(gateway, payer, nonce, columns);
    for (let times = 0; times < 2; times++) {
      t.strictSame(await ofPayer(), { ...found, unrecorded: 0, others: 0 });
    }
    const { rows } = await sql`select from transfer where kind = 'deposit'`.execute(gateway.db);
    t.equal(rows.length, found.known);
    t.strictSame(await audit(gateway.db), []);
  });
}

test('a transfer without a payment is recorded and booked once', { skip }, async (t) => {
  const { gateway, asset, payer, look, ofPayer } = await scene(t);
  const { transaction } = await land(payer);
  const [transfer = assert.fail()] = (await look()).unrecorded.filter((each) => each.transaction === transaction);
  const record = () => recordTransfer(gateway.db, asset, transfer, 'deposit');
  const recorded = await Promise.all(Array.from({ length: 8 }, record));
  t.equal(recorded.filter(Boolean).length, 1);
  t.equal(await record(), false);
  t.equal(await recordTransfer(gateway.db, asset, transfer, 'speech'), false);
  t.strictSame(await ofPayer(), { known: 1, open: 0, unrecorded: 0, others: 0 });
  const account = await gateway.db
    .selectFrom('account')
    .select('balance_micro_usd')
    .where('address', '=', payer.address.toLowerCase())
    .executeTakeFirst();
  t.equal(account?.balance_micro_usd, AMOUNT);
  t.strictSame(await audit(gateway.db), []);
});

test('block ranges shrink for a node that limits them, and every node is read', { skip }, async (t) => {
  const narrow = await startRpcNode(t, chain.rpcUrl);
  const blind = await startRpcNode(t, chain.rpcUrl);
  blind.falsehood = ({ method }) => (method === 'eth_getLogs' ? { result: [] } : undefined);
  const { payer, ofPayer } = await scene(t, [blind.url, narrow.url]);
  await land(payer);
  await chain.client.mine({ blocks: 20 });
  await land(payer);
  narrow.falsehood = allowing(5, { error: { code: -32005, message: 'query returned more than 10000 results' } });
  t.strictSame(await ofPayer(), { known: 0, open: 0, unrecorded: 2, others: 0 });

  narrow.falsehood = failing;
  t.equal((await ofPayer()).unrecorded, 0, 'one node is enough for an answer');
  blind.falsehood = failing;
  await t.rejects(ofPayer(), /with an error or without a result/);
});

test('transfers before the given time are not read', { skip }, async (t) => {
  const { gateway, payer, payments, asset } = await scene(t);
  await land(payer);
  const config = gateway.config.x402 as X402Config;
  // Clocks may differ by ten minutes.
  await chain.client.increaseTime({ seconds: 1200 });
  await chain.client.mine({ blocks: 2 });
  const { timestamp } = await chain.client.getBlock();
  const later = new Date(Number(timestamp) * 1000);
  const { unrecorded } = await settleReceived({ db: gateway.db, payments, asset, payees: config.payees }, later);
  t.strictSame(unrecorded, []);
});
