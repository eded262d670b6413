import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../../src/ledger/audit.ts';
import { say } from '../../journeys/card.ts';
import { form, shownAccount } from '../../payments/top-up/shop.ts';
import { testCheckout } from '../../support/checkout.ts';
import { startFaultyCheckout } from '../../support/faulty-checkout.ts';
import { give } from '../../support/feedback.ts';
import { startGateway } from '../../support/gateway.ts';
import { later, untilJob } from '../../support/jobs.ts';
import { assertEnds, operatorCommand } from '../../support/operator-command.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { viemWallet } from '../../support/wallet.ts';

const EMAIL = 'Buyer@example.com';
const DAY_MS = 86_400_000;
const WHY = ['--reason', 'ticket 7', '--yes'];

/** A shop where somebody has bought credit for 7 dollars and used some of it. */
async function start(t: Test) {
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, { ...checkout.env, SPEECH_BASE_URL: (await testUpstream(t)).url });
  const env = { ...checkout.env, DATABASE_URL: gateway.databaseUrl, SPEECHGATE_OPERATOR: 'alice' };
  const run = (...args: string[]) => operatorCommand(env, 'accounts', ...args);
  const opened = await gateway.call('/top-up', form({ amount: '700' }));
  const back = new URL(await checkout.pay(opened.headers.get('location') ?? '', EMAIL));
  const account = shownAccount((await gateway.call(`${back.pathname}${back.search}`)).text);
  const session = back.searchParams.get('session_id') ?? '';
  const spoken = await gateway.call('/tts', say(account));
  assert.equal(spoken.status, 200);
  const { payment_intent } = await checkout.stripe.checkout.sessions.retrieve(session);
  const traceId = String(spoken.headers.get('x-trace-id'));
  return { gateway, checkout, run, account, session, traceId, paymentIntent: String(payment_intent) };
}

test('an account is found by email, session, payment, trace or address', async (t) => {
  const { gateway, run, account, session, traceId, paymentIntent } = await start(t);
  await later(gateway, account);
  const other = await gateway.fund(500);
  const wallet = { address: `0x${'Ab'.repeat(20)}` };
  await gateway.db
    .insertInto('account')
    .values({ kind: 'wallet', address: wallet.address.toLowerCase(), balance_micro_usd: 0n })
    .execute();
  const short = `${account.slice(0, 8)}…`;
  for (const by of [
    ['--email', EMAIL.toLowerCase()],
    ['--session', session],
    ['--payment-intent', paymentIntent],
    ['--trace', traceId],
  ]) {
    const found = await run('find', ...by);
    t.equal(found.code, 0, found.output);
    t.match(found.out, new RegExp(`^${short} +card +6\\.\\d{6} +0\\.000000 +20\\S+Z +no$`, 'm'));
    t.ok(!found.output.includes(account) && !found.out.includes(session), 'secrets');
    t.ok(!found.out.includes(other.slice(0, 8)));
  }
  t.match(
    (await run('find', '--address', wallet.address)).out,
    new RegExp(`^${wallet.address.toLowerCase()} +wallet`, 'm'),
  );
  const json = JSON.parse((await run('find', '--email', EMAIL, '--json', '--secrets')).out);
  t.strictSame([json.accounts[0].account, json.purchases[0].sessionId], [account, session]);
  t.equal((await run('find', '--email', 'nobody@example.com')).code, 1);
  t.equal((await run('find', '--trace', randomUUID())).code, 1);

  const shown = await run('show', short);
  t.equal(shown.code, 0, shown.output);
  t.match(shown.out, new RegExp(`^account +${short}$`, 'm'));
  t.match(shown.out, /^kind +card, test mode$/m);
  t.match(shown.out, /^balance +6\.999604 USD$/m);
  t.match(shown.out, /^held +0\.000198 USD$/m, 'by the job that waits');
  t.match(shown.out, new RegExp(`credited +7\\.000000 +cs_test_\\S+… +${paymentIntent}$`, 'm'));
  t.match(shown.out, new RegExp(`charge +posted +-0\\.000198 +11 +${traceId}$`, 'm'));
  t.match(shown.out, /top_up +posted +7\.000000$/m);
  t.match(shown.out, /^ {2}20\S+Z +[0-9a-f-]{36} +queued +0 +[0-9a-f-]{36}$/m);
  t.ok(!shown.out.includes(account) && !shown.out.includes(session));
  const whole = JSON.parse((await run('show', account, '--json', '--secrets', '--last', '1')).out);
  t.strictSame([whole.account, whole.balanceMicroUsd, whole.transfers.length], [account, 6_999_604, 1]);
  t.match((await run('show', wallet.address)).out, /^kind +wallet$/m);

  await assertEnds(run, [
    [['show', randomUUID()], 1, /^ACCOUNT does not exist/],
    [['show', 'abc'], 1, /8 digits/],
    [['show'], 2, /^ACCOUNT is missing/],
    [['find'], 2, /^Give exactly one of --email, .*\nUsage: speechgate admin accounts find --email ADDRESS \| /],
    [['show', account, '--last', 'x'], 2, /^--last is \w, but it must be a whole number/],
    [['find', '--trace', 'x'], 2, /is not a trace id/],
    [['drop', account], 2, /one of these/],
  ]);
});

test('accounts are listed by kind, balance, age and state, the newest first', async (t) => {
  const gateway = await startGateway(t);
  const run = (...args: string[]) => operatorCommand({ DATABASE_URL: gateway.databaseUrl }, 'accounts', ...args);
  const [poor, rich] = [await gateway.fund(500), await gateway.fund(5_000)];
  const wallet = `0x${'ab'.repeat(20)}`;
  await gateway.db.insertInto('account').values({ kind: 'wallet', address: wallet, balance_micro_usd: 7n }).execute();
  await gateway.db.updateTable('account').set({ frozen_at: new Date() }).where('id', '=', poor).execute();
  const [short, long] = [poor, rich].map((id) => `${id.slice(0, 8)}…`);
  const today = new Date().toISOString().slice(0, 10);
  for (const [options, expected] of [
    [[], [wallet, long, short]],
    [['--kind', 'wallet'], [wallet]],
    [
      ['--min', '5'],
      [long, short],
    ],
    [
      ['--max', '5.00'],
      [wallet, short],
    ],
    [['--min', '0.000008', '--max', '49.999999'], [short]],
    [['--frozen'], [short]],
    [['--indebted'], []],
    [
      ['--from', today, '--to', today, '--last', '2'],
      [wallet, long],
    ],
    [['--to', '2026-01-01'], []],
  ] as const) {
    const listed = await run('list', ...options);
    t.equal(listed.code, 0, listed.output);
    t.strictSame(
      listed.out
        .split('\n')
        .slice(1, -1)
        .map((line) => line.split(' ')[0]),
      expected,
      options.join(' '),
    );
  }
  const json = JSON.parse((await run('list', '--min', '50', '--json', '--secrets')).out);
  t.strictSame([json[0].account, json[0].balanceMicroUsd], [rich, 50_000_000]);
  await assertEnds(run, [
    [['list', '--kind', 'contra'], 2, /^--kind is contra, but it must be card or wallet/],
    [['list', '--min', 'much'], 2, /^--min must be US dollars .*, not much/],
    [['list', '--from', 'monday'], 2, /^--from or --to is not a date. Give a day/],
    [['list', '--last', '0'], 2, /^--last is \w, but it must be a whole number/],
  ]);
});

test('an account is exported whole, and sales are reported by account', async (t) => {
  const { gateway, run, account, session, traceId } = await start(t);
  const short = `${account.slice(0, 8)}…`;
  const lines = (await run('export', short)).out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const records = lines.map(({ record }) => record);
  t.strictSame(records, ['account', 'purchase', 'transfer', 'transfer']);
  t.strictSame([lines[0].balanceMicroUsd, lines[1].amountCents], [6_999_802, 700]);
  t.strictSame([lines[2].amountMicroUsd, lines[2].traceId], [-198, traceId]);
  t.ok(!JSON.stringify(lines).includes(account) && !JSON.stringify(lines).includes(session));
  const [head, first, ...others] = (await run('export', account, '--csv', '--secrets')).out.trimEnd().split('\n');
  t.match(head ?? '', /^record,.*\bbalanceMicroUsd,.*\bamountCents,.*\bamountMicroUsd\b/);
  t.ok(first?.startsWith('account,') && first.includes(account));
  t.equal(others.length, 3);
  const env = { DATABASE_URL: gateway.databaseUrl };
  const report = (...args: string[]) =>
    operatorCommand(env, ...(['report', '--from', '2026-01-01', '--by', 'account', ...args] as const));
  t.match((await report('--no-outside')).out, new RegExp(`^${short} +1 +0 +11 +0\\.000198 `, 'm'));
  t.match((await report('--csv', '--secrets')).out, new RegExp(`^${account},1,0,11,198,`, 'm'));
  t.equal((await run('export', `0x${'12'.repeat(20)}`)).code, 1);

  // An account of many entries is exported whole, each once.
  const count = 5_000;
  await sql`insert into operator_action (operator, action, subject, reason)
    select 'alice', 'freeze', ${account}, n::text from generate_series(1, ${sql.lit(count)}) n`.execute(gateway.db);
  for (const args of [[], ['--csv']]) {
    const lines = (await run('export', account, ...args)).out.trimEnd().split('\n');
    const actions = lines.filter((line) => /^action,|^\{"record":"action"/.test(line));
    t.strictSame([actions.length, new Set(actions).size], [count, count]);
  }
});

test('erasing deletes feedback and stored audio, keeps the books, and is recorded', async (t) => {
  const { gateway, run, account, session } = await start(t);
  const wallet = viemWallet();
  t.equal((await give(gateway, wallet, { message: '=1+1,\u202e\u001b[2J\nBye', category: 'bug' })).status, 201);
  const exported = await run('export', wallet.address, '--csv');
  t.ok(exported.out.includes(`"'=1+1,\\u202e\\u001b[2J\\nBye"`), exported.out);
  const { jobId } = (await later(gateway, account)).json;
  const early = await run('erase', account, ...WHY);
  t.equal(early.code, 1, 'the job would store audio afterwards');
  t.match(
    early.err,
    /^Jobs of [0-9a-f]{8}… that are not finished and may store audio later: 1\. Nothing was erased: .*\.$/m,
  );
  gateway.app.worker?.start();
  await untilJob(gateway, jobId, 'completed');
  const asked = await run('erase', account, '--reason', 'asked for it');
  t.equal(asked.code, 2);
  t.match(asked.err, /^This will erase the feedback of [0-9a-f]{8}… .* Transfers, purchases and payments stay, /);
  t.match(asked.err, /Audio paid in USDC is kept for a day/);
  t.match((await run('erase', account, ...WHY)).out, /: erased feedback messages: 0, jobs with stored audio: 1$/m);
  t.match(
    (await run('erase', wallet.address, ...WHY)).out,
    /^0x\S+: erased feedback messages: 1, jobs with stored audio: 0$/m,
  );
  t.equal((await gateway.app.reconcilers.turn()).find(({ name }) => name === 'expired_audio')?.count, 1);
  t.strictSame(await gateway.db.selectFrom('feedback').selectAll().execute(), []);
  const kept = await run('show', account);
  t.match(kept.out, /erase +alice +\{"jobs":1,"feedback":0\} +ticket 7$/m);
  t.match(kept.out, new RegExp(`credited +7\\.000000 +${session.slice(0, 16)}`));
  t.strictSame(await audit(gateway.db), []);
});

test('freezing and adjusting an account require a reason, and a key adjusts once', async (t) => {
  const { gateway, run, account } = await start(t);
  t.equal((await run('freeze', account, '--reason', 'ticket 7')).code, 2, 'nobody has said yes');
  t.equal((await gateway.call('/tts', say(account))).status, 200);
  t.match((await run('freeze', account, ...WHY)).out, /is frozen$/m);
  t.match((await run('freeze', account, ...WHY)).out, /was already frozen$/m);
  t.equal((await gateway.call('/tts', say(account))).status, 402);
  t.match((await run('show', account)).out, /^frozen +since 20/m);
  t.match((await run('unfreeze', account, ...WHY)).out, /is not frozen$/m);
  const before = await gateway.balance(account);
  const given = await run('adjust', account, '0.25', ...WHY);
  t.equal(given.code, 0, given.output);
  t.match(given.err, /^This will give [0-9a-f]{8}… 0\.250000 USD: balance 6\.999604 -> 7\.249604$/m);
  const [, key = ''] = /--key (\S+)/.exec(given.err) ?? [];
  const again = await run('adjust', account, '+0.250000', ...WHY, '--key', key);
  t.match(again.out, /run with this --key already made this change/);
  t.equal((await run('adjust', account, '0.250001', ...WHY, '--key', key)).code, 2);
  t.equal(await gateway.balance(account), before + 250_000n);
  const taken = await run('adjust', account, '-0.25', ...WHY);
  t.equal(taken.code, 0, taken.output);
  t.match(taken.err, /^This will take 0\.250000 USD from [0-9a-f]{8}…: balance 7\.249604 -> 6\.999604$/m);
  t.equal(await gateway.balance(account), before);
  const tooMuch = await run('adjust', account, '-9', ...WHY);
  t.strictSame([tooMuch.code, /has only .* USD\. Nothing was changed/.test(tooMuch.err)], [1, true]);
  for (const wrong of ['0', '10001', '0.0000001', '1e3', '']) {
    const refused = await run('adjust', account, wrong, ...WHY);
    t.strictSame([refused.code, /^USD must be .*, not .*\.\nUsage: .*\n$/.test(refused.err)], [2, true], refused.err);
  }
  const shown = await run('show', account);
  t.match(shown.out, /adjust +alice +\{"amountUsd":"0\.250000"\} +ticket 7$/m);
  t.match(shown.out, /adjustment +posted +-0\.250000/);
  t.strictSame(await audit(gateway.db), []);
});

test('a refund returns a purchase to its card once per key and records the debt', async (t) => {
  const { gateway, checkout, run, account, session, paymentIntent } = await start(t);
  const part = await run('refund', session, '--amount', '2', ...WHY);
  t.equal(part.code, 0, part.output);
  t.match(
    part.err,
    /^This will refund 2\.000000 USD of purchase \S+ \(7\.000000 USD on 20\S+\) to its card, from \S+: balance 6\.999802 -> 4\.999802$/m,
  );
  t.match(
    part.out,
    /^re_\S+ \(succeeded\) refunds 2\.000000 USD; [0-9a-f]{8}… has 4\.999802 USD and owes 0\.000000 USD$/m,
  );
  const [, key = ''] = /--key (\S+)/.exec(part.err) ?? [];
  t.equal((await run('refund', session, '--amount', '2.00', ...WHY, '--key', key)).code, 0);
  t.equal(await gateway.balance(account), 4_999_802n, 'once');
  const { id } = await gateway.db.selectFrom('top_up').select('id').executeTakeFirstOrThrow();
  const rest = await run('refund', id, ...WHY);
  t.match(rest.out, /refunds 5\.000000 USD; [0-9a-f]{8}… has 0\.000000 USD and owes 0\.000198 USD$/m, rest.output);
  const again = await run('refund', id, ...WHY);
  t.equal(again.code, 1, again.output);
  t.match(again.err, /Nothing was refunded/);
  const { data } = await checkout.stripe.refunds.list({ payment_intent: paymentIntent });
  t.strictSame(data.map(({ amount }) => amount).sort(), [200, 500]);
  await gateway.app.reconcilers.turn();
  const shown = await run('show', account);
  t.match(shown.out, /^debt +0\.000198 USD$/m);
  t.match(shown.out, /re_\S+ +refund +taken +succeeded +2\.000000 /);
  t.match(shown.out, /refund +alice +\{.*"amountUsd":"2\.000000".*\} +ticket 7$/m);
  t.strictSame(await audit(gateway.db), []);
  t.equal((await run('refund', 'cs_test_nothing', ...WHY)).code, 1);
  for (const wrong of ['0', '-2', '2.005', '']) {
    const refused = await run('refund', session, `--amount=${wrong}`, ...WHY);
    t.strictSame(
      [refused.code, /^--amount must be .*, not .*\.\nUsage: .*\n$/.test(refused.err)],
      [2, true],
      refused.err,
    );
  }
});

test('a refund repeated after the processor forgot its key is not made twice', async (t) => {
  const { gateway, checkout, run, account, session } = await start(t);
  const refund = ['refund', session, '--amount', '2', '--key', randomUUID(), ...WHY];
  t.equal((await run(...refund)).code, 0);
  const before = await gateway.balance(account);
  const { now } = Date;
  t.teardown(() => Object.assign(Date, { now }));
  Date.now = () => now() + DAY_MS;
  const repeated = await run(...refund);
  t.equal(repeated.code, 0, repeated.output);
  t.match(repeated.out, /refunds 2\.000000 USD;/);
  t.equal((await checkout.stripe.refunds.list()).data.length, 1);
  t.equal(await gateway.balance(account), before);
  const other = await run('refund', session, '--amount', '2', ...WHY);
  t.equal(other.code, 0, other.output);
  t.equal((await checkout.stripe.refunds.list()).data.length, 2, 'under another key it is another refund');
});

test('only an answer that excludes a refund is told as "Nothing was refunded"', async (t) => {
  const checkout = await startFaultyCheckout(t);
  const env = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const gateway = await startGateway(t, { ...env, CHECKOUT_ORIGIN: 'http://127.0.0.1' });
  const opened = await gateway.call('/top-up', form({ amount: '5000' }));
  const session = String(opened.headers.get('location')).split('/').at(-1) ?? '';
  await checkout.pay(session);
  t.equal((await gateway.call(`/top-up/complete?session_id=${session}`)).status, 200);
  const refund = (key: string) =>
    operatorCommand(
      { ...env, DATABASE_URL: gateway.databaseUrl, SPEECHGATE_OPERATOR: 'alice' },
      ...(['accounts', 'refund', session, '--amount', '1', '--key', key, ...WHY] as const),
    );
  const answer = (status: number, error: object) => {
    checkout.fault = (_method, path, response) => {
      if (!path.endsWith('/refunds')) return false;
      const headers = { 'content-type': 'application/json', 'stripe-should-retry': 'false' };
      response.writeHead(status, headers).end(JSON.stringify({ error: { message: 'no', ...error } }));
      return true;
    };
  };
  const refusals = [
    [400, { type: 'invalid_request_error', code: 'charge_already_refunded' }],
    [401, { type: 'invalid_request_error' }],
    [402, { type: 'card_error' }],
    [403, { type: 'invalid_request_error' }],
    [404, { type: 'invalid_request_error', code: 'resource_missing' }],
  ] as const;
  for (const [status, error] of refusals) {
    answer(status, error);
    const refused = await refund(randomUUID());
    t.strictSame([refused.code, /Nothing was refunded/.test(refused.err)], [1, true], `${status} ${refused.err}`);
  }
  const doubts = [
    [400, { type: 'idempotency_error' }, /unknown whether/],
    [400, { type: 'invalid_request_error', code: 'rate_limit' }, /later/],
    [408, { type: 'api_error' }, /unknown whether/],
    [409, { type: 'idempotency_error', code: 'idempotency_key_in_use' }, /unknown whether/],
    [409, { type: 'invalid_request_error', code: 'lock_timeout' }, /unknown whether/],
    [425, { type: 'api_error' }, /unknown whether/],
    [429, { type: 'invalid_request_error', code: 'lock_timeout' }, /later/],
    [500, { type: 'api_error' }, /unknown whether/],
  ] as const;
  for (const [status, error, told] of doubts) {
    const key = randomUUID();
    answer(status, error);
    const first = await refund(key);
    t.equal(first.code, 69, `${status} ${first.err}`);
    t.match(first.err, told);
    t.match(first.err, /the same --key/);
    t.notMatch(first.err, /Nothing was refunded/);
    answer(401, { type: 'invalid_request_error' });
    t.equal((await refund(key)).code, 69, 'the key may have made it before its right was lost');
    checkout.fault = () => false;
    t.strictSame([(await refund(key)).code, (await refund(key)).code], [0, 0]);
  }
  t.equal((await checkout.stripe.refunds.list()).data.length, doubts.length);
});
