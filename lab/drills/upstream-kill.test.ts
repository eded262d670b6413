import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { audit } from '../../src/ledger/audit.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { catalogWithSecond } from '../../test/support/catalog-file.ts';
import { type Child, startChild } from '../../test/support/child.ts';
import type { Gateway } from '../../test/support/gateway.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { fundedWallet, startPrepaidGateway, TTS } from '../../test/support/prepaid.ts';
import { prepaidSigner } from '../../test/support/prepaid-signer.ts';
import { startStubUpstream } from '../../test/support/stub-upstream.ts';
import { until } from '../../test/support/until.ts';

/** How often the first upstream dies, and how many requests are made meanwhile: `UPSTREAM_KILLS=100` makes 10,000. */
const KILL_POINTS = Number(process.env.UPSTREAM_KILLS ?? 5);
const REQUESTS_PER_KILL = 100;
const REQUESTS = KILL_POINTS * REQUESTS_PER_KILL;
const CALLERS = 8;
const CENTS = 5_000;
/** All of the same length, so that each has the same price. */
const WHOLE = 'Quickly spoken text.';
const IN_HALVES = 'Slowly spoken texts.';
const PRICE = 360n;

/** Makes one request and waits for its audio; tells whether it was served. */
type Caller = () => Promise<boolean>;

async function startPrimary(t: Test, port: number): Promise<Child> {
  const primary = startChild(t, 'test/support/upstream-process.ts', { PORT: String(port) });
  await primary.printed(/speaks/);
  return primary;
}

const isMp3 = (bytes: Buffer) => bytes.length > 1000 && bytes[0] === 0xff;

/** Half of the requests by card, three tenths prepaid, two tenths jobs. */
async function callersOf(gateway: Awaited<ReturnType<typeof startPrepaidGateway>>) {
  const card = await gateway.fund(CENTS);
  const key = generatePrivateKey();
  const wallet = privateKeyToAccount(key);
  const payer = await fundedWallet(gateway, BigInt(CENTS) * 10_000n, wallet);
  const sign = prepaidSigner(wallet.address, key, gateway.domain);
  const json = { 'content-type': 'application/json' };

  const byCard: Caller = async () => {
    const headers = { 'x-credit-account': card };
    const { status, bytes } = await gateway.call('/tts', { method: 'POST', json: { text: WHOLE }, headers });
    return status === 200 && isMp3(bytes);
  };
  const prepaid =
    (text: string): Caller =>
    async () => {
      const body = JSON.stringify({ text });
      const terms = { nonce: randomUUID(), expiry: BigInt(Math.floor(Date.now() / 1000) + 100), max: 1_000_000n };
      const { status, bytes } = await gateway.call(TTS, sign(TTS, { method: 'POST', body, headers: json }, terms));
      return status === 200 && isMp3(bytes);
    };
  const job: Caller = async () => {
    const { status, json: accepted } = await later(gateway, card, { text: IN_HALVES });
    if (status !== 202) return false;
    return (await untilJob(gateway, accepted.jobId, 'completed', 'failed')).json.status === 'completed';
  };
  const paid = async () => 2n * BigInt(CENTS) * 10_000n - (await gateway.balance(card)) - (await payer.balance());
  const mix = [byCard, prepaid(WHOLE), byCard, job, byCard, prepaid(IN_HALVES), byCard, job, byCard, prepaid(WHOLE)];
  return { paid, ask: (turn: number) => (mix[turn % mix.length] as Caller)() };
}

async function sample({ app }: Gateway, name: string): Promise<number> {
  const line = (await app.metrics.scrape()).split('\n').find((each) => each.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

test(`${REQUESTS} requests succeed while the first upstream is killed ${KILL_POINTS} times`, async (t) => {
  const second = await startStubUpstream();
  t.teardown(() => second.close());
  const port = await freePort();
  let primary = await startPrimary(t, port);
  const gateway = await startPrepaidGateway(
    t,
    { CATALOG_FILE: await catalogWithSecond(t, second.url), SPEECH_BASE_URL: `http://127.0.0.1:${port}/v1` },
    { worker: true },
  );
  const { ask, paid } = await callersOf(gateway);
  const spokenByFirst = () => sample(gateway, 'speechgate_upstream_requests_total{upstream="default",outcome="ok"}');

  let begun = 0;
  let ended = 0;
  const unserved: string[] = [];
  const callUntil = async (last: number) => {
    while (begun < last) {
      const turn = begun++;
      const isServed = await ask(turn).catch((error) => `${error}`);
      if (isServed !== true) unserved.push(`${turn}: ${isServed}`);
      ended++;
    }
  };
  for (let kill = 1; kill <= KILL_POINTS; kill++) {
    const before = await spokenByFirst();
    const killAt = ended + 20 + Math.floor(Math.random() * 40);
    const calls = Array.from({ length: CALLERS }, () => callUntil(kill * REQUESTS_PER_KILL));
    await until(() => ended >= killAt);
    assert.ok((await spokenByFirst()) > before, 'the first upstream speaks when it is killed');
    await primary.stop('SIGKILL');
    [primary] = await Promise.all([startPrimary(t, port), ...calls]);
    await until(async () => (await sample(gateway, 'speechgate_upstream_available{upstream="default"}')) === 1);
  }

  const served = REQUESTS - unserved.length;
  t.comment(
    `${served} of ${REQUESTS} requests were served with ${KILL_POINTS} kills; the second upstream spoke ${second.requests.length}`,
  );
  assert.ok(served >= REQUESTS * 0.999, unserved.join('\n'));
  assert.equal(await paid(), BigInt(served) * PRICE);
  const { rows } = await sql<{ upstream: string; spoken: bigint; least: bigint; most: bigint }>`
    select upstream, count(*) as spoken, min(amount_micro_usd) as least, max(amount_micro_usd) as most
    from transfer where kind in ('charge', 'spend') and state = 'posted' group by upstream order by upstream`.execute(
    gateway.db,
  );
  assert.deepEqual(
    rows.map(({ upstream, least, most }) => ({ upstream, least, most })),
    ['default', 'second'].map((upstream) => ({ upstream, least: PRICE, most: PRICE })),
  );
  assert.equal(
    rows.reduce((sum, { spoken }) => sum + spoken, 0n),
    BigInt(served),
  );
  assert.deepEqual(await audit(gateway.db), []);
});
