import { execFileSync } from 'node:child_process';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startCommand } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { send, startGateway } from '../support/gateway.ts';
import { ControlledStream, silentMp3, testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const NPM_START = ['npm', 'start', '--silent'];
/** npm is process 1, as in a container. */
const AS_INIT = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', ...NPM_START];

/** Whether this user may make a process namespace. */
function hasNamespaces(): boolean {
  try {
    execFileSync('unshare', ['--pid', '--fork', '--mount-proc', 'true'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** The npm process itself, which is the child of unshare where that made the namespace. */
async function npmOf(pid: number, isInit: boolean): Promise<number> {
  if (!isInit) return pid;
  let child = '';
  await until(() => {
    try {
      child = execFileSync('pgrep', ['-P', String(pid)])
        .toString()
        .trim();
    } catch {}
    return child !== '';
  });
  return Number(child);
}

async function startByNpm(t: Test, command: string[], env: Record<string, string>) {
  const child = startCommand(t, command, { env, isGroup: true });
  await child.printed(/listens on/);
  return { pid: await npmOf(child.process.pid as number, command === AS_INIT), child };
}

test('npm start, as process 1 where possible: SIGTERM finishes requests before npm exits with 0', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const upstream = await testUpstream(t);
  const { db, fund, balance } = await startGateway(t, {}, { databaseUrl });
  const port = String(await freePort());
  const npm = await startByNpm(t, hasNamespaces() ? AS_INIT : NPM_START, {
    PORT: port,
    DATABASE_URL: databaseUrl,
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    RECONCILE_INTERVAL_MS: '86400000',
  });
  const baseUrl = `http://127.0.0.1:${port}`;
  const account = await fund(500);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const running = send(baseUrl, '/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  await drip.opened;
  await drip.write(silentMp3(100));
  process.kill(npm.pid, 'SIGTERM');
  await until(() =>
    fetch(baseUrl).then(
      () => false,
      () => true,
    ),
  );
  const rest = silentMp3(500);
  await drip.write(rest);
  drip.end();
  const reply = await running;
  t.equal(reply.status, 200);
  t.ok(reply.bytes.length > rest.length, 'the audio is whole');
  t.strictSame([await npm.child.ended(), await balance(account)], [0, 4_999_802n]);
  t.strictSame(await audit(db), []);
  for (const line of npm.child.output().trim().split('\n')) t.doesNotThrow(() => JSON.parse(line), line);
});
