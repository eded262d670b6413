import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentPayload } from '@x402/core/types';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { Hex, LocalAccount } from 'viem';
import { currentPayee } from '../../src/config/payees.ts';
import type { X402Config } from '../../src/config/x402-settings.ts';
import { audit } from '../../src/ledger/audit.ts';
import {
  type Authorization,
  included,
  type SignedAuthorization,
  signAuthorization,
  submitAuthorization,
  type TestChain,
  wallet,
} from './chain.ts';
import { payloadOf } from './facilitator.ts';
import type { Call, Gateway, Reply } from './gateway.ts';
import { domainOf, withCredential } from './prepaid.ts';
import { until } from './until.ts';
import { challengeOf, nonceOf, payFor, sign, type X402Gateway } from './x402.ts';

export const DEPOSIT_PATH = '/x402/deposit';
/** The smallest deposit, in micro-USD. */
export const DEPOSIT = 100_000;

/** Blocks come all the time, as on a public chain, until the test ends, or what is returned is called. */
export function mineSteadily(t: Test, { client }: TestChain, everyMs = 50): () => void {
  let goesOn = true;
  const mining = (async () => {
    while (goesOn) {
      await client.mine({ blocks: 1 });
      await sleep(everyMs);
    }
  })();
  const stop = () => {
    goesOn = false;
  };
  t.teardown(() => {
    stop();
    return mining;
  });
  return stop;
}

/** The request to deposit so many micro-USD, without payment. */
export const depositOf = (amountMicroUsd: unknown): Call => ({ method: 'POST', json: { amountMicroUsd } });

/** The official client's payload for a deposit. */
export async function signDeposit(
  gateway: Gateway,
  payer: LocalAccount,
  amountMicroUsd = DEPOSIT,
): Promise<PaymentPayload> {
  return sign(payer, await challengeOf(gateway, DEPOSIT_PATH, depositOf(amountMicroUsd)));
}

/** Challenge, signature and the paid deposit; tells the paid call too, for repetitions. */
export const payDeposit = (gateway: Pick<Gateway, 'call'>, payer: LocalAccount, amountMicroUsd = DEPOSIT) =>
  payFor(gateway, payer, depositOf(amountMicroUsd), DEPOSIT_PATH);

/** A request that is under way. */
export interface Pending {
  readonly reply: Promise<Reply>;
  isAnswered(): boolean;
}

/** Sends the paid deposit without waiting for its answer. */
export function sendDeposit(gateway: Gateway, paid: Call): Pending {
  let answered = false;
  const reply = gateway.call(DEPOSIT_PATH, paid).finally(() => {
    answered = true;
  });
  // Who awaits it later still gets the failure.
  reply.catch(() => {});
  return { reply, isAnswered: () => answered };
}

/** The signed authorization within a payload. */
export function signedOf(payload: PaymentPayload): SignedAuthorization {
  const { authorization, signature } = payload.payload as {
    authorization: Record<'from' | 'to' | 'nonce', Hex> & Record<'value' | 'validAfter' | 'validBefore', string>;
    signature: Hex;
  };
  const { value, validAfter, validBefore, ...rest } = authorization;
  const numbers = { value: BigInt(value), validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) };
  return { authorization: { ...rest, ...numbers }, signature };
}

/** The payload with other terms, signed again. */
export async function withTerms(
  signer: LocalAccount,
  payload: PaymentPayload,
  terms: Partial<Authorization>,
): Promise<PaymentPayload> {
  const signed = await signAuthorization(signer, { ...signedOf(payload).authorization, ...terms });
  return { ...payload, payload: payloadOf(payload.accepted, signed).payload };
}

/** Presents a payload's authorization to USDC past the facilitator; resolves with the transaction once it is included. */
export async function land({ client }: TestChain, payload: PaymentPayload): Promise<Hex> {
  return included(client, submitAuthorization(client, await wallet(client), signedOf(payload)));
}

/** Pays by a settlement whose end is not found out in time: the transfer lands after the answer. */
export async function payUnknown<Paid extends { readonly reply: Reply; readonly payload: PaymentPayload }>(
  gateway: X402Gateway,
  chain: TestChain,
  pay: () => Promise<Paid>,
): Promise<Paid> {
  gateway.facilitator.faults.settle({ broadcast: false, answer: 'error' });
  const paid = await pay();
  assert.equal(paid.reply.status, 409, paid.reply.text.slice(0, 300));
  await land(chain, paid.payload);
  return paid;
}

/** Waits until the gateway waits for the depth of a payload's transfer, and tells the transaction. */
export async function awaitedTransaction(gateway: Gateway, payload: PaymentPayload): Promise<Hex> {
  let transaction: string | null | undefined;
  await until(async () => {
    const row = await gateway.db
      .selectFrom('x402_payment')
      .select('awaited_transaction')
      .where('nonce', '=', nonceOf(payload))
      .executeTakeFirst();
    transaction = row?.awaited_transaction;
    return typeof transaction === 'string';
  });
  return transaction as unknown as Hex;
}

/** The wallet's balance as its owner reads it over HTTP, in micro-USD; undefined when it has never deposited. */
export async function prepaidBalance(gateway: Gateway, owner: LocalAccount): Promise<number | undefined> {
  const path = `/x402/accounts/${owner.address}`;
  const { payees } = gateway.config.x402 as X402Config;
  const domain = domainOf(currentPayee(payees).address, `${gateway.config.serviceName}-Prepaid`);
  const reply = await gateway.call(path, await withCredential(owner, domain, path, {}));
  if (reply.status === 404) return undefined;
  assert.equal(reply.status, 200, reply.text);
  return reply.json.balanceMicroUsd;
}

/** Status, and what the answer says that was credited; or status and error code. */
export const told = ({ status, json }: Reply) =>
  status === 200 ? [status, json.creditedMicroUsd, json.alreadyCredited] : [status, json.error.code];

/** One turn of the reconciler of payments in doubt: its outcome, and how many came to their end. */
export async function doubtfulTurn({ app }: Gateway): Promise<[string, number]> {
  const results = await app.reconcilers.turn();
  const result = results.find(({ name }) => name === 'doubtful_payments');
  assert.ok(result);
  return [result.outcome, result.count];
}

/** Nothing was reserved, and the facilitator was not asked. */
export async function assertUntouched(gateway: X402Gateway): Promise<void> {
  assert.equal(gateway.facilitator.calls.length, 0);
  assert.deepEqual(await paymentStates(gateway), []);
}

/** The states of all payments, in the order of their reservation. */
export async function paymentStates({ db }: Gateway): Promise<string[]> {
  const rows = await db.selectFrom('x402_payment').select('state').orderBy('id').execute();
  return rows.map(({ state }) => state);
}

/**
 * The wallet has exactly these deposits on the chain, all are credited once and nothing else is, and the audit finds
 * nothing.
 */
export async function assertCredited(gateway: Gateway, owner: LocalAccount, amounts: number[]): Promise<void> {
  const { rows } = await sql<{ amount: bigint }>`
    select amount_micro_usd as amount from transfer
    join account on account.id = transfer.credit_account_id
    where transfer.kind = 'deposit' and transfer.state = 'posted' and account.address = ${owner.address.toLowerCase()}
    order by transfer.created_at, transfer.id`.execute(gateway.db);
  assert.deepEqual(
    rows.map(({ amount }) => Number(amount)),
    amounts,
  );
  const sum = amounts.reduce((total, amount) => total + amount, 0);
  assert.equal(await prepaidBalance(gateway, owner), amounts.length === 0 ? undefined : sum);
  assert.deepEqual(await audit(gateway.db), []);
}
