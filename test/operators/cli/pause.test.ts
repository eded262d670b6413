import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { type Test, test } from 'tap';
import { createApp } from '../../../src/app.ts';
import { createLogger } from '../../../src/observability/logger.ts';
import { say } from '../../journeys/card.ts';
import { type Gateway, send, startGateway } from '../../support/gateway.ts';
import { assertEnds, operatorCommand } from '../../support/operator-command.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';

const SECONDS = 5_000;
/** One account asks until it is served. */
const UNLIMITED = { RATE_LIMIT_MAX: '10000', EDGE_RATE_LIMIT_MAX: '100000' };
const WHY = ['--reason', 'the provider is being moved'];

async function start(t: Test) {
  const gateway = await startGateway(t, { SPEECH_BASE_URL: (await testUpstream(t)).url, ...UNLIMITED });
  const run = (name = '', ...args: string[]) =>
    operatorCommand({ DATABASE_URL: gateway.databaseUrl, USER: 'root', SUDO_USER: 'alice' }, name, ...args);
  return { gateway, run, account: await gateway.fund(500) };
}

/** Another gateway on the same database, started as `npm start` does it. */
async function startReplica(t: Test, { config }: Gateway): Promise<{ url: string }> {
  const app = await createApp({ ...config, port: 0 }, createLogger('silent'));
  t.teardown(() => app.close());
  assert.equal((await app.start('web')).outcome, 'started');
  return { url: `http://127.0.0.1:${(app.server.server.address() as AddressInfo).port}` };
}

test('every replica refuses a paused flow until it is resumed', async (t) => {
  const { gateway, run, account } = await start(t);
  t.match((await run('paused')).out, /^Nothing is paused\.$/m);
  const paused = await run('pause', 'card', 'top-up', ...WHY, '--yes');
  t.strictSame([paused.code, paused.out], [0, 'card is paused\ntop-up is paused\n'], paused.output);
  await until(async () => (await gateway.call('/tts', say(account))).status === 503, SECONDS);
  const second = await startReplica(t, gateway);
  t.equal((await send(second.url, '/tts', say(account))).status, 503, 'its first answer');
  t.equal((await send(second.url, '/tts/models')).status, 200);
  const listed = await run('paused');
  t.match(listed.out, /^flow +since +operator +reason$/m);
  t.match(listed.out, /^card +20\S+Z +alice +the provider is being moved$/m, 'who called sudo, not root');
  const json = JSON.parse((await run('paused', '--json')).out) as { flow: string }[];
  t.strictSame(json.map(({ flow }) => flow).sort(), ['card', 'top-up']);
  const resumed = await run('resume', 'all', ...WHY, '--yes', '--json', '--operator', 'bob');
  t.strictSame(JSON.parse(resumed.out).changed.sort(), ['card', 'top-up']);
  await until(async () => (await send(second.url, '/tts', say(account))).status === 200, SECONDS);
  const actions = await gateway.db.selectFrom('operator_action').select(['operator', 'action']).orderBy('id').execute();
  const told = actions.map(({ operator, action }) => `${operator} ${action}`);
  t.strictSame(told, ['alice pause', 'alice pause', 'bob resume', 'bob resume']);
});

test('a pause without confirmation, reason, operator or known flow changes nothing', async (t) => {
  const { gateway, run } = await start(t);
  await assertEnds(run, [
    [['pause', 'card', ...WHY], 2, /no terminal to confirm this\. Add --yes/],
    [['pause', 'card', '--yes'], 2, /--reason is missing/],
    [['pause', 'everything', ...WHY, '--yes'], 2, /FLOW everything does not exist[\s\S]*card, jobs, top-up/],
    [['pause', ...WHY, '--yes'], 2, /^FLOW is missing/],
    [['pause', 'card', '--force', ...WHY], 2, /Unknown option '--force'\. --help lists/],
    [['pause', 'card', '--yes', '--reason', 'x'.repeat(501)], 2, /500 characters/],
    [['pause', 'card', ...WHY, '--yes', '--operator', 'x'.repeat(101)], 2, /100 characters/],
    [['paused', 'card'], 2, /^Unexpected argument card\./],
  ]);
  t.strictSame(await gateway.db.selectFrom('paused_flow').selectAll().execute(), []);

  // Without another name, the operator is the login.
  const pause = ['pause', 'card', ...WHY, '--yes'] as const;
  const { code, output } = await operatorCommand({ DATABASE_URL: gateway.databaseUrl }, ...pause);
  t.equal(code, 0, output);
  const [action] = await gateway.db.selectFrom('operator_action').select('operator').execute();
  t.equal(action?.operator, userInfo().username);
});
