import pg from 'pg';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { testDatabase } from '../support/database.ts';
import { fund, startGateway } from '../support/gateway.ts';
import { ControlledStream, mp3, silentMp3, testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FUNDED = 5_000_000n;
const PRICE = 198n;
const NAME = (url: string) => new URL(url).pathname.slice(1);

/** A primary with a funded account, and a standby that has got nothing after that. */
async function startReplicated(t: Test) {
  const primary = await testDatabase(t);
  const db = openDatabase(primary.url, { maxConnections: 1 });
  const account = await fund(db, 500);
  await db.destroy();
  const standby = await testDatabase(t, primary);
  const { TEST_DATABASE_URL: server = primary.url } = process.env;
  /** Breaks all connections of the first database, and renames it. */
  const rename = async (client: pg.Client, from: string, to: string) => {
    await client.query(`alter database ${from} with allow_connections false`);
    await client.query('select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1', [from]);
    await client.query(`alter database ${from} rename to ${to}`);
    await client.query(`alter database ${to} with allow_connections true`);
  };
  const exchange = async (names: readonly (readonly [from: string, to: string])[]) => {
    const url = new URL(server);
    url.pathname = '/postgres';
    const client = new pg.Client(url.href);
    await client.connect();
    for (const [from, to] of names) await rename(client, from, to);
    await client.end();
  };
  const [first, second] = [NAME(primary.url), NAME(standby.url)];
  t.teardown(() =>
    exchange([
      [first, second],
      [`${first}_lost`, first],
    ]),
  );
  return {
    url: primary.url,
    account,
    /** The primary is gone with all that it has committed since, and the standby takes its place. */
    failOver: () =>
      exchange([
        [first, `${first}_lost`],
        [second, first],
      ]),
  };
}

test('after a failover loses commits, a process captures only its own holds', async (t) => {
  const { url, account, failOver } = await startReplicated(t);
  const drip = new ControlledStream();
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'warn' }, { databaseUrl: url });
  const call = { headers: { 'x-credit-account': account } };
  const ask = () => gateway.call('/tts?text=Hello+world', call);
  t.equal((await ask()).status, 200);
  await booksClosed(gateway.db);
  upstream.mode = drip.mode;
  const begunBefore = ask();
  await drip.opened;
  t.equal(await gateway.balance(account), FUNDED - 2n * PRICE);

  await failOver();
  let balance: bigint | undefined;
  await until(async () => {
    balance = await gateway.balance(account).catch(() => undefined);
    return balance !== undefined;
  });
  t.equal(balance, FUNDED, 'both commits are lost');
  const later = new ControlledStream();
  upstream.mode = later.mode;
  const begunAfter = ask();
  await later.opened;
  await drip.write(silentMp3(500));
  drip.end();
  t.equal((await begunBefore).status, 200);
  await until(() => gateway.log.some(({ msg }) => /delivered response is probably not charged/.test(msg)));
  t.equal(await gateway.balance(account), FUNDED - PRICE, 'the later hold is as it was');
  later.reset();
  t.ok((await begunAfter).status >= 500);
  t.equal(await gateway.balance(account), FUNDED);

  upstream.mode = mp3();
  t.equal((await ask()).status, 200);
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), FUNDED - PRICE);
  t.strictSame(await audit(gateway.db), []);
});
