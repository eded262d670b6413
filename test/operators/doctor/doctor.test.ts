import assert from 'node:assert/strict';
import { chmod, copyFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, t, test } from 'tap';
import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../../src/config/network.ts';
import { openDatabase } from '../../../src/db/database.ts';
import { claimInstance } from '../../../src/ledger/database-identity.ts';
import { catalogWithSecond } from '../../support/catalog-file.ts';
import { longCatalog } from '../../support/long-texts.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { projectFile } from '../../support/project.ts';
import { speechgate } from '../../support/speechgate.ts';
import { adding, type Case, type Cases, changing, proxy } from './case.ts';
import { FAULTS_OF_ADDRESS } from './faults-of-address.ts';
import { FAULTS_OF_CHAIN } from './faults-of-chain.ts';
import { FAULTS_OF_DATABASE } from './faults-of-database.ts';
import { FAULTS_OF_KEEPING } from './faults-of-keeping.ts';
import { FAULTS_OF_PROVIDERS, sending } from './faults-of-providers.ts';
import { FAULTS_OF_SETTINGS } from './faults-of-settings.ts';
import { BUCKET, examine, freePlaces, lacking, startScene, startService, writeKeys } from './scene.ts';

const scene = await startScene(t);
const { skip } = scene;
const OLD_SECONDS = 10;
const denomination = { network: DEFAULT_NETWORK, asset: DEFAULT_ASSET.toLowerCase() };
const owner = openDatabase(scene.ownerUrl, { maxConnections: 1 });
await claimInstance(owner, { denomination, livemode: false }).finally(() => owner.destroy());
const shared = await startService(t, { ...scene.env, ...(await freePlaces()) });

/** Each thing that can be wrong, made for real, and what doctor says of it. */
const cases: Cases = {
  ...{ ...FAULTS_OF_SETTINGS, ...FAULTS_OF_DATABASE, ...FAULTS_OF_PROVIDERS },
  ...{ ...FAULTS_OF_CHAIN, ...FAULTS_OF_KEEPING, ...FAULTS_OF_ADDRESS },
};

/** Configurations that differ from the scene's, and in which nothing is wrong either. */
const healthy: Readonly<Record<string, Case['make']>> = {
  "a bucket, a second upstream, and a key file for the service's group": async ({ env, folder, upstream }, t) => {
    const file = join(folder, 'grouped.json');
    await copyFile(env.SIGNING_KEYS_FILE as string, file);
    await chmod(file, 0o640);
    const CATALOG_FILE = await catalogWithSecond(t, upstream.url);
    return { own: { AUDIO_STORE: `s3://${BUCKET}/audio`, SIGNING_KEYS_FILE: file, CATALOG_FILE } };
  },
  'long texts, webhooks, a trusted proxy, two nodes and a retiring payee': async (scene, t, places) => {
    const { env, chain } = scene;
    const BASE_URL = await proxy(t, places.PORT, adding);
    const { all } = await sending({ url: `${BASE_URL}/webhooks/stripe` })(scene, t, places);
    const payees = `${env.X402_PAY_TO},0x00000000000000000000000000000000000000b2:retiring`;
    const address = { TRUST_PROXY: '127.0.0.1', BASE_URL };
    const nodes = `${env.X402_RPC_URL},${chain.rpcUrl}`;
    const CATALOG_FILE = await longCatalog(t, 500);
    return { all: { ...all, ...address, CATALOG_FILE, X402_RPC_URL: nodes, X402_PAY_TO: payees } };
  },
};

/** The chain mines no blocks by itself, and blocks that were mined faster than one a second are ahead of the time. */
async function withRecentBlock(): Promise<void> {
  const { timestamp } = await scene.chain.client.getBlock();
  if (Date.now() / 1000 - Number(timestamp) > OLD_SECONDS) await scene.chain.client.mine({ blocks: 1 });
}

type Finding = Awaited<ReturnType<typeof examine>>[number];

/** What doctor finds of a service, one of its own where the service itself has other settings than the scene's. */
async function findings(t: Test, make: Case['make'] = () => ({})): Promise<Finding[]> {
  await withRecentBlock();
  const places = await freePlaces();
  const { all, own = {}, options } = await make(scene, t, places);
  const { env } = all ? await startService(t, { ...scene.env, ...places, ...all }) : shared;
  return examine({ ...env, ...own }, options);
}

const wrongOf = (told: readonly Finding[]) => told.filter(({ state }) => state !== 'ok');

test('a healthy configuration passes every check and sends no mail', { skip }, async (t) => {
  t.strictSame(wrongOf(await findings(t)), []);
  t.strictSame(scene.mail.mails, []);
  const others = shared.log.map(({ msg }) => msg).filter((msg) => msg?.includes('X-Forwarded-For'));
  t.strictSame(others, [], 'the probes alarm nobody');
});

for (const [name, make] of Object.entries(healthy))
  test(`no check reports ${name}`, { skip }, async (t) => t.strictSame(wrongOf(await findings(t, make)), []));

for (const [name, { finds, skipped = [], make, skip: reason }] of Object.entries(cases)) {
  const [state, check, message] = finds;
  test(`only ${check} reports ${name}`, { skip: skip || reason || false }, async (t) => {
    const told = wrongOf(await findings(t, make));
    const wrong = told.filter((finding) => finding.state !== 'skipped');
    t.strictSame([...new Set(wrong.map((finding) => finding.name))], [check], JSON.stringify(wrong, null, 2));
    for (const finding of wrong) {
      t.equal(finding.state, state);
      t.match(finding.message, message);
      t.ok(finding.fix);
    }
    const without = new Set(told.filter((finding) => finding.state === 'skipped').map((finding) => finding.name));
    t.strictSame([...without].sort(), [...skipped].sort());
  });
}

test('a key that can’t list webhook endpoints leaves them unchecked', { skip }, async (t) => {
  const told = wrongOf(
    await findings(t, (scene, t, places) => {
      changing('checkout', { fault: lacking('GET /v1/webhook_endpoints') })(scene, t, places);
      return { own: { STRIPE_WEBHOOK_SECRET: 'whsec_of_the_doctor_test' } };
    }),
  );
  const shown = told.map(({ name, state }) => [name, state]);
  t.strictSame(shown, [['card-webhook', 'skipped']]);
  t.match(told[0]?.message, /webhook endpoints can't be listed \(status 403\)/);
});

/** Nothing of these may be printed. */
const SECRETS = ['STRIPE_SECRET_KEY', 'QUOTE_SECRET', 'JOB_SIGNING_SECRET', 'FEEDBACK_SECRET', 'X402_FACILITATOR_AUTH'];

test('without X402_PAY_TO doctor names it where nothing proves that BASE_URL is right', { skip }, async (t) => {
  const { X402_PAY_TO, X402_FACILITATOR_URL, X402_FACILITATOR_AUTH, ...env } = shared.env;
  const identity = (await examine(env, { left: ['upstream'] })).find(({ name }) => name === 'identity');
  t.match(identity, {
    state: 'skipped',
    message: /^Not checked: whether BASE_URL leads to this service\. X402_PAY_TO is unset/,
  });
});

test('speechgate doctor prints a line per check and exits 1 if any has a fault', { skip }, async (t) => {
  await withRecentBlock();
  const { env } = shared;
  const spoken = scene.upstream.requests.length;
  const fine = await operatorCommand({ ...env, RECONCILE_INTERVALL_MS: '1' }, 'doctor', '--no-speak');
  t.equal(fine.code, 0, fine.output);
  const lines = fine.out.trimEnd().split('\n');
  t.match(lines[0] ?? '', /^warning {2}settings +.*RECONCILE_INTERVALL_MS .* Fix: /);
  const shown = lines.slice(1).filter((line) => !/^ok {7}[a-z]/.test(line));
  t.strictSame(shown, [
    'skipped  upstream                            Not checked: whether the speech server can speak with this model. --no-speak leaves this check out.',
  ]);
  t.equal(scene.upstream.requests.length, spoken);
  t.strictSame(scene.mail.mails, []);

  const wrong = { ...env, X402_FACILITATOR_URL: 'http://127.0.0.1:1', X402_RPC_URL: 'http://127.0.0.1:1' };
  const faulty = await speechgate(wrong, 'doctor', '--json', '--skip', 'node', '--skip', 'upstream');
  t.equal(faulty.code, 1, faulty.output);
  const told: Finding[] = JSON.parse(faulty.out);
  const named = (state: string) => told.filter((finding) => finding.state === state).map(({ name }) => name);
  t.strictSame(named('fault'), ['facilitator']);
  t.strictSame(named('skipped'), ['upstream', 'upstream', 'node', 'node-logs', 'asset', 'payee']);
  t.ok(told.every(({ state, message, fix }) => message && (state === 'fault') === (fix !== undefined)));
  for (const name of SECRETS)
    for (const { output } of [fine, faulty]) t.ok(!output.includes(env[name] ?? assert.fail()), name);
  for (const { output } of [fine, faulty]) t.ok(!output.includes(new URL(env.DATABASE_URL ?? '').password));
});

test('speechgate doctor exits 78 and prints every invalid setting', async (t) => {
  const SIGNING_KEYS_FILE = await writeKeys(scene.folder, 'ended.json', ({ keys: [current] }) => {
    if (current) current.validUntil = new Date(Date.now() - 1000).toISOString();
  });
  const env = { ...scene.env, SIGNING_KEYS_FILE, PORT: 'eighty', QUOTE_SECRET: 'short' };
  const names = ['PORT', 'QUOTE_SECRET', 'SIGNING_KEYS_FILE'];
  const printed = await operatorCommand(env, 'doctor');
  t.equal(printed.code, 78);
  t.strictSame(
    printed.out
      .trimEnd()
      .split('\n')
      .map((line) => /^FAULT {4}(\w+) +\1 .* Fix: /.exec(line)?.[1]),
    names,
  );
  const { code, out } = await operatorCommand(env, 'doctor', '--json');
  t.equal(code, 78);
  const told = JSON.parse(out).map(({ name }: Finding) => name);
  t.strictSame(told, names);
  for (const wrong of [['--quick'], ['--skip', 'everything']]) {
    const refused = await operatorCommand(scene.env, 'doctor', ...wrong);
    t.equal(refused.code, 2, refused.output);
    t.ok(!/^ +at /m.test(refused.err), refused.err);
  }
});

test('docs/commands.md lists every check and no other', { skip }, async (t) => {
  const page = await readFile(projectFile('docs/commands.md'), 'utf8');
  const section = page.split(/^## /m).find((text) => text.startsWith('Doctor')) ?? '';
  const listed = [...section.slice(section.indexOf('\n- ')).matchAll(/`([a-z-]+)`/g)].map(([, name]) => name);
  t.strictSame(listed, [...new Set((await examine(scene.env, { left: ['upstream'] })).map(({ name }) => name))]);
});
