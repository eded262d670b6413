import { test } from 'tap';
import type { LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { testChain, wallet } from '../../test/support/chain.ts';
import {
  assertCredited,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  mineSteadily,
  payDeposit,
  signDeposit,
  signedOf,
  told,
} from '../../test/support/deposit.ts';
import { invalid } from '../../test/support/facilitator-faults.ts';
import type { Reply } from '../../test/support/gateway.ts';
import { until } from '../../test/support/until.ts';
import { startX402Gateway, withPayment } from '../../test/support/x402.ts';

const { chain, skip } = await testChain();

const stranger = (): LocalAccount => privateKeyToAccount(generatePrivateKey());
const left = ({ headers }: Reply) => headers.get('x-ratelimit-remaining');

test('R48: an address verifies only as many failing deposits at once as its limit', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '10' });
  const calls = await Promise.all(
    Array.from({ length: 100 }, async () => withPayment(depositOf(DEPOSIT), await signDeposit(gateway, stranger()))),
  );
  const replies = await Promise.all(calls.map((call) => gateway.call(DEPOSIT_PATH, call)));
  // Under load the chain may be too slow: 502 is a failure too.
  t.equal(replies.filter(({ status }) => status === 402 || status === 502).length, 10);
  const limited = replies.filter(({ status }) => status === 429);
  t.equal(limited.length, 90);
  for (const reply of limited) {
    t.equal(reply.json.error.code, 'RATE_LIMITED');
    t.equal(reply.headers.get('x-ratelimit-scope'), 'ip');
    t.ok(Number(reply.headers.get('retry-after')) >= 1);
  }
  t.equal(gateway.facilitator.calls.length, 10);
  const again = await gateway.call(DEPOSIT_PATH, calls[0]);
  t.strictSame([again.status, left(again)], [429, '0']);
  t.equal((await gateway.call(DEPOSIT_PATH, depositOf(DEPOSIT))).status, 402, 'a challenge costs no slot');
});

test('R48: a paid deposit that fails before its settlement takes a slot', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '7' });
  const payer = await wallet(chain.client, 10n * BigInt(DEPOSIT));
  const good = await signDeposit(gateway, payer);
  const poor = await signDeposit(gateway, stranger());
  const foreign = { ...good.payload, signature: signedOf(poor).signature };
  gateway.facilitator.faults.verify(invalid('invalid_exact_evm_signature'), 'error');
  const attempts: [unknown, number][] = [
    ['junk', 400],
    [{ ...good, payload: foreign }, 400],
    [{ ...good, accepted: { ...good.accepted, amount: '1' } }, 402],
    [good, 402],
    [good, 502],
    [poor, 402],
  ];
  for (const [index, [payload, status]] of attempts.entries()) {
    const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload));
    t.strictSame([reply.status, left(reply)], [status, String(6 - index)], reply.text);
  }

  mineSteadily(t, chain);
  const paid = withPayment(depositOf(DEPOSIT), good);
  const credited = await gateway.call(DEPOSIT_PATH, paid);
  t.strictSame([told(credited), left(credited)], [[200, DEPOSIT, false], '1'], 'a success costs none');
  const repeated = await gateway.call(DEPOSIT_PATH, paid);
  t.strictSame([told(repeated), left(repeated)], [[200, 0, true], '1'], 'nor does a repetition');
  const conflict = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(2 * DEPOSIT), good));
  t.strictSame([conflict.status, left(conflict)], [409, '0']);
  t.equal((await gateway.call(DEPOSIT_PATH, paid)).status, 429);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R48: deposits that await confirmations take no slot of their address', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '2' });
  const payers = [await wallet(chain.client, BigInt(DEPOSIT)), await wallet(chain.client, BigInt(DEPOSIT))] as const;
  const waiting = payers.map((payer) => payDeposit(gateway, payer));
  await until(async () => {
    const rows = await gateway.db.selectFrom('x402_payment').select('awaited_transaction').execute();
    return rows.filter((row) => row.awaited_transaction !== null).length === 2;
  });
  const third = payDeposit(gateway, await wallet(chain.client, BigInt(DEPOSIT)));
  mineSteadily(t, chain);
  for (const deposit of [...waiting, third]) t.equal((await deposit).reply.status, 200);
});
