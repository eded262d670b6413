import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { Child } from '../../test/support/child.ts';
import { testDatabase } from '../../test/support/database.ts';
import { fund, type Gateway, send } from '../../test/support/gateway.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';

/** Starts a command where the service is installed, with nothing in its environment but what is given. */
export type Start = (command: readonly string[], env: Record<string, string>) => Child;

const SERVICE = ['node', 'dist/main.js'];
const COMMAND = ['node', 'dist/speechgate.js'];

const audioOf = ({ status, headers, bytes }: Awaited<ReturnType<typeof send>>) => ({
  ...{ status, type: headers.get('content-type'), isLong: bytes.length > 4000 },
});
const SPEECH = { status: 200, type: 'audio/mpeg', isLong: true };

/**
 * Installs a new database by the installed `migrate`, starts a gateway of two processes and a worker, has them speak, audits
 * the books, and stops them by SIGTERM.
 * @param dataDir where the service keeps its files, a new one of this machine unless another one is given
 * @param meanwhile is called with the settings of the gateway while it runs
 */
export async function serves(
  t: Test,
  start: Start,
  dataDir?: string,
  meanwhile?: (settings: Record<string, string>) => Promise<void>,
): Promise<void> {
  const { url: databaseUrl } = await testDatabase(t);
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  await sql.raw('drop schema public cascade; drop schema graphile_worker cascade; create schema public').execute(db);

  const env = { DATABASE_URL: databaseUrl };
  const migrated = start([...COMMAND, 'migrate'], env);
  assert.equal(await migrated.ended(), 0, migrated.output());
  assert.match(migrated.output(), /^Applied 0001_ledger, /);

  const voice = start([...COMMAND, 'voice'], {});
  await voice.printed(/The voice server listens on \S+/);
  const settings = {
    ...env,
    HOST: '127.0.0.1',
    BASE_URL: 'http://speechgate.test',
    DATA_DIR: dataDir ?? (await folderOf(t)),
    SPEECH_BASE_URL: / listens on (\S+)/.exec(voice.output())?.[1] ?? assert.fail('the voice prints its base'),
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
  };
  const ports = async () => ({ PORT: String(await freePort()), ADMIN_PORT: String(await freePort()) });
  const web = { ...settings, ...(await ports()), WEB_CONCURRENCY: '2' };
  const gateway = start([...SERVICE, '--role=web'], web);
  await gateway.printed(/listens on .* with 2 processes/);
  const url = `http://127.0.0.1:${web.PORT}`;
  const ready = await fetch(`http://127.0.0.1:${web.ADMIN_PORT}/readyz`);
  assert.equal(ready.status, 200, await ready.text());
  assert.equal((await fetch(`${url}/openapi.json`)).status, 200);

  const account = await fund(db, 500);
  const body = { method: 'POST', json: { text: 'Hello world' }, headers: { 'x-credit-account': account } };
  assert.deepEqual(audioOf(await send(url, '/tts', body)), SPEECH);

  const call: Gateway['call'] = (path, sent) => send(url, path, sent);
  const { jobId } = (await later({ call }, account)).json;
  const worker = start([...SERVICE, '--role=worker'], { ...settings, ...(await ports()) });
  assert.equal((await untilJob({ call }, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.deepEqual(audioOf(await call(`/tts/jobs/${jobId}/audio`)), SPEECH);
  await meanwhile?.(web);

  const audited = start([...COMMAND, 'audit'], env);
  assert.equal(await audited.ended(), 0, audited.output());
  await until(() => /"msg":"a job attempt ended[^"]*"/.test(worker.output()));
  assert.deepEqual([await worker.stop(), await gateway.stop()], [0, 0], worker.output() + gateway.output());
  assert.equal(await voice.stop(), 0, voice.output());
}

async function folderOf(t: Test): Promise<string> {
  const folder = await temporaryFolder(t);
  return folder;
}
