import { randomUUID } from 'node:crypto';
import { type Test, test } from 'tap';
import { breakStream } from '../../support/broken-stream.ts';
import { type Reply, startGateway } from '../../support/gateway.ts';
import { later, untilJob } from '../../support/jobs.ts';
import { assertEnds, operatorCommand } from '../../support/operator-command.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';

const trace = (databaseUrl: string, ...args: string[]) =>
  operatorCommand({ DATABASE_URL: databaseUrl }, 'trace', ...args);

async function start(t: Test, options: { worker?: boolean } = {}) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'info' }, options);
  return { upstream, gateway, account: await gateway.fund(500) };
}

const traceIdOf = (reply: Reply): string => String(reply.headers.get('x-trace-id'));

test('the x-trace-id of an aborted stream leads to its log line and its voided charge', async (t) => {
  const { gateway, upstream, account } = await start(t);
  const traceId = await breakStream(gateway.url, account, upstream);
  await until(() => gateway.log.some(({ msg }) => msg === 'request'));
  const line = gateway.log.find((candidate) => candidate.traceId === traceId && candidate.msg === 'request');
  t.strictSame([line?.end, line?.chargedMicroUsd], ['broken_off', 0]);
  const { code, out } = await trace(gateway.databaseUrl, traceId);
  t.equal(code, 0);
  const [header = '', entry = '', ...more] = out.trimEnd().split('\n');
  t.match(header, /^at +what +id +state +amountUsd +payer +detail$/);
  t.match(entry, /^20\S+Z +charge +[0-9a-f-]{36} +voided +0\.000198 +[0-9a-f]{8}… +characters 11, ended 20\S+Z$/);
  t.strictSame(more, []);
  t.ok(!out.includes(account), 'the account id is a secret');
});

test('trace prints a job and its charge, also as JSON', async (t) => {
  const { gateway, account } = await start(t, { worker: true });
  const accepted = await later(gateway, account, { key: 'order 7' });
  await untilJob(gateway, accepted.json.jobId, 'completed');
  const repeated = await later(gateway, account, { key: 'order 7' });
  const line = gateway.log.find(({ traceId, first }) => traceId === traceIdOf(repeated) && first !== undefined);
  t.equal(line?.first, traceIdOf(accepted), 'the line of a repeated request leads to the one that made the job');
  const { out } = await trace(gateway.databaseUrl, String(line?.first).toUpperCase());
  t.match(out, new RegExp(`job +${accepted.json.jobId} +completed`));
  t.match(out, /charge +[0-9a-f-]{36} +posted +0\.000198 /);
  const json = await trace(gateway.databaseUrl, '--json', String(line?.first));
  t.ok(!json.out.includes(account));
  const told = JSON.parse(json.out) as { what: string; state: string; amountMicroUsd: number }[];
  const charge = told.find(({ what }) => what === 'charge');
  t.strictSame([charge?.state, charge?.amountMicroUsd], ['posted', 198]);
});

test('trace prints a USDC payment with outcome and payer, and refuses an unknown id', async (t) => {
  const { gateway } = await start(t);
  const traceId = randomUUID();
  const payer = `0x${'ab'.repeat(20)}`;
  await gateway.db
    .insertInto('x402_payment')
    .values({
      ...{ purpose: 'deposit', identifier: 'pay_1', request_hash: Buffer.alloc(32), network: 'eip155:8453' },
      ...{ asset: payer, payer, pay_to: payer, nonce: `0x${'01'.repeat(32)}`, amount_micro_usd: 100_000n },
      ...{ valid_before: 1n, head_block: 1n, trace_id: traceId, state: 'refused', refusal: 'a\u001b[2Jb' },
      ...{ failed_at: new Date(), settling_at: new Date() },
    })
    .execute();
  const { out } = await trace(gateway.databaseUrl, traceId);
  t.match(
    out,
    new RegExp(`payment +[0-9a-f-]{36} +refused +0\\.100000 +${payer} +deposit, refused: a\\\\u001b\\[2Jb$`, 'm'),
  );

  t.equal((await trace(gateway.databaseUrl, randomUUID())).out, '');
  await assertEnds(
    (...args) => trace(gateway.databaseUrl, ...args),
    [
      [[randomUUID()], 1, /No charge, job or payment has this trace id/],
      [['nonsense'], 2, /UUID in the x-trace-id header/],
      [[], 2, /^ID is missing/],
      [[randomUUID(), randomUUID()], 2, /Unexpected argument/],
    ],
  );
});
