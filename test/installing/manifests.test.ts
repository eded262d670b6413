/** ops/compose.yaml, ops/ and the ops/Containerfile say what the service knows, and agree with each other. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { test } from 'tap';
import { parse } from 'yaml';
import { loadCatalog } from '../../src/config/catalog.ts';
import { readConfig } from '../../src/config/config.ts';
import { readRole } from '../../src/config/role.ts';
import { stopTimeoutMs } from '../../src/primary.ts';
import { renderChart } from '../support/chart.ts';
import { startGateway } from '../support/gateway.ts';
import { projectFile } from '../support/project.ts';
import { testUpstream } from '../support/stub-upstream.ts';

const PROJECT = projectFile('');

// biome-ignore lint/suspicious/noExplicitAny: these files have no types; what tests need of them they assert.
type Document = any;

const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');
const readYaml = async (path: string): Promise<Document> => parse(await read(path), { merge: true });

/** Names and values of `NAME=value` lines, as Docker and systemd read them. */
const readEnvFile = async (path: string): Promise<Record<string, string>> =>
  Object.fromEntries([...(await read(path)).matchAll(/^([A-Z0-9_]+)=(.*)$/gm)].map(([, name, value]) => [name, value]));

/** The objects of the chart with all its parts, by kind and name, such as `Deployment/speechgate-gateway`. */
async function chartObjects(): Promise<Map<string, Document>> {
  const rules = await read('ops/prometheus/alerts.yml');
  const all = { ingress: { enabled: true }, monitoring: { enabled: true, rules } };
  const objects = new Map<string, Document>();
  for (const object of await renderChart(all)) {
    const name = `${object.kind}/${object.metadata.name}`;
    if (objects.has(name)) throw new Error(`the chart has ${name} again`);
    objects.set(name, object);
  }
  return objects;
}

/** A unit of ops/systemd: the values of each key, `Section.Key`, in their order. */
async function readUnit(name: string): Promise<Map<string, string[]>> {
  const unit = new Map<string, string[]>();
  let section = '';
  for (const line of (await read(`ops/systemd/${name}`)).split('\n')) {
    section = /^\[(\w+)\]$/.exec(line)?.[1] ?? section;
    const [, key, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (key !== undefined) unit.set(`${section}.${key}`, [...(unit.get(`${section}.${key}`) ?? []), value as string]);
  }
  return unit;
}

/** Names of the settings that the service reads, with those of the AWS SDK that docs/scaling.md tells. */
async function knownSettings(): Promise<Set<string>> {
  const known = new Set<string>();
  readConfig(new Proxy({}, { get: (_env, name) => void known.add(String(name)), ownKeys: () => [] }));
  for (const [name] of (await read('docs/scaling.md')).matchAll(/\bAWS_\w+/g)) known.add(name);
  return known;
}

/** Instructions of the last stage of the ops/Containerfile by their names. */
async function imageInstructions(): Promise<Map<string, string[]>> {
  const instructions = new Map<string, string[]>();
  for (const line of (await read('ops/Containerfile')).replaceAll('\\\n', ' ').split('\n')) {
    const [, name, rest] = /^([A-Z]+) (.+)$/.exec(line) ?? [];
    if (name === 'FROM') instructions.clear();
    if (name !== undefined) instructions.set(name, [...(instructions.get(name) ?? []), rest as string]);
  }
  return instructions;
}

/** `NAME=value …` as an object. */
const assignments = (text: string): Record<string, string> =>
  Object.fromEntries(
    text.split(' ').map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]),
  );

const RECIPES = 'examples/catalogs/README.md';
const files = (await readdir(new URL('examples/catalogs/', PROJECT)))
  .filter((name) => name.endsWith('.json'))
  .map((name) => `examples/catalogs/${name}`);
const [, ...recipes] = (await readFile(new URL(RECIPES, PROJECT), 'utf8')).split(/^## /m);
const SERVICES = ['speechgate@.service', 'speechgate-worker.service'];
const UNITS = [...SERVICES, 'speechgate-migrate.service', 'speechgate-audit.service'];
const AUDIT = ['audit', '--external', '--seal'];
/** As in `npm start`: docs/operate.md says what it is for. */
const HEAP = '--max-semi-space-size=32';
const SECRET = 'a-secret-of-the-tests-of-32-bytes-or-more';
/** Of the image of Node.js programs, and what is for the other images of ops/compose.yaml. */
const OTHERS = new Set([
  ...['NODE_ENV', 'POSTGRES_DB', 'POSTGRES_PASSWORD', 'DATABASE_APP_PASSWORD', 'S3_BUCKET'],
  ...['PGHOST', 'PGUSER', 'PGDATABASE', 'PGPASSWORD'],
]);

const known = await knownSettings();
const image = await imageInstructions();
const imageEnv = assignments(image.get('ENV')?.join(' ') ?? '');
const compose = await readYaml('ops/compose.yaml');
const services: [string, Document][] = Object.entries(compose.services);
const own = services.filter(([, { image }]) => /speechgate/.test(image));
const objects = await chartObjects();
const deployments = [...objects.values()].filter(({ kind }) => kind === 'Deployment');
const job = objects.get('Job/speechgate-migrate');
const audit = objects.get('CronJob/speechgate-audit');
const settingsExample = await readEnvFile('ops/settings.env.example');

/** How long a stop may take with these settings. The primary of several processes waits a second longer than each of them. */
function stopSeconds({ STOP_DRAIN_MS = '' }: Record<string, string>): number {
  const env = { DATABASE_URL: 'postgres://db/x', SPEECH_BASE_URL: 'http://speech.internal/v1', STOP_DRAIN_MS };
  const { outcome, ...rest } = readConfig(env);
  assert.equal(outcome, 'read');
  return ('config' in rest ? stopTimeoutMs(rest.config) : Number.NaN) / 1000 + 1;
}

/** A command is that of a program of dist/ with arguments that it takes; the service's is told the size of its heap. */
function isCommand([node, ...rest]: string[]): void {
  assert.match(node ?? '', /^(\/usr\/bin\/)?node$/);
  const { program = '' } = /(?<program>dist\/\S+)/.exec(rest.join(' '))?.groups ?? {};
  assert.ok(existsSync(program.replace(/^dist\/(.+)\.js$/, 'src/$1.ts')), program);
  if (program === 'dist/main.js') assert.ok(rest[0] === HEAP && readRole(rest.slice(2)), rest.join(' '));
  else
    assert.ok(
      [['migrate'], AUDIT].some((args) => isDeepStrictEqual(rest.slice(1), args)),
      rest.join(' '),
    );
}

/** The service would start with these settings, which have nothing that it doesn't know. */
function starts(env: Record<string, string>): void {
  const { outcome, misspelt, ...rest } = readConfig(env);
  assert.deepEqual([outcome, misspelt, 'faults' in rest ? rest.faults : []], ['read', [], []]);
}

test('each variable in the files of ops/ is a known setting', async (t) => {
  const named = [
    ...Object.keys(imageEnv),
    ...services.flatMap(([, { environment = {} }]) => Object.keys(environment)),
    ...Object.keys(settingsExample),
    ...Object.keys(objects.get('ConfigMap/speechgate').data),
  ];
  for (const unit of UNITS)
    for (const line of (await readUnit(unit)).get('Service.Environment') ?? [])
      named.push(...Object.keys(assignments(line)));
  t.ok(named.length > 40, named.join(' '));
  const others = named.filter((name) => !known.has(name) && !OTHERS.has(name));
  t.strictSame(others, []);
});

test('ops/compose.yaml: each variable is in ops/compose.env.example or has a default', async (t) => {
  const text = await read('ops/compose.yaml');
  const wanted = [...text.matchAll(/\$\{(\w+):\?\}/g)].map(([, name]) => name);
  t.strictSame([...new Set(wanted)].sort(), Object.keys(await readEnvFile('ops/compose.env.example')).sort());
  t.equal(text.match(/\$\{/g)?.length, wanted.length + (text.match(/\$\{SPEECHGATE_IMAGE:-/g)?.length ?? 0));
});

test('ops/compose.yaml: two gateways and a worker start after the migration', async (t) => {
  t.strictSame(
    own.map(([name, { command }]) => [name, command.at(-1)]),
    [
      ['migrate', 'migrate'],
      ['gateway-1', '--role=web'],
      ['gateway-2', '--role=web'],
      ['worker', '--role=worker'],
      ['audit', '--seal'],
    ],
  );
  for (const [name, { command, env_file, environment, depends_on, stop_grace_period, restart }] of own) {
    isCommand(command);
    for (const [other, { condition }] of Object.entries<Document>(depends_on)) {
      const waitedFor = compose.services[other];
      if (condition === 'service_healthy') t.ok(waitedFor.healthcheck.test, other);
      else t.equal(condition, 'service_completed_successfully');
    }
    if (name === 'migrate') continue;
    t.equal(depends_on.migrate.condition, 'service_completed_successfully');
    t.equal(restart, name === 'audit' ? 'no' : 'unless-stopped');
    t.equal(env_file, 'speechgate.env');
    t.ok(Number.parseInt(stop_grace_period, 10) > stopSeconds(settingsExample), stop_grace_period);
    const filled = Object.entries<string>(environment).map(([key, value]) => [
      key,
      value.replace(/\$\{\w+:\?\}/, 'secret'),
    ]);
    starts({ ...imageEnv, ...settingsExample, ...Object.fromEntries(filled) });
  }
  const volumes = services.flatMap(([, { volumes = [] }]) => volumes as string[]).map((volume) => volume.split(':')[0]);
  for (const volume of volumes as string[])
    t.ok(volume.startsWith('./') ? existsSync(`ops/${volume}`) : volume in compose.volumes, volume);
});

test("the health checks are programs that ask the operators' listener", async (t) => {
  const [, shown = '[]'] = /CMD (\[.+\])$/.exec(image.get('HEALTHCHECK')?.[0] ?? '') ?? [];
  const checks = [JSON.parse(shown), compose['x-service'].healthcheck.test.slice(1)];
  for (const [node, option, program] of checks) {
    t.strictSame([node, option], ['node', '-e']);
    t.match(program, /process\.env\.ADMIN_PORT.*\/(livez|readyz)/);
    t.doesNotThrow(() => new Function(program));
  }
  t.equal(deployments.length, 2);
  for (const { spec } of deployments) {
    const [container] = spec.template.spec.containers;
    const { containerPort } = container.ports.find(({ name }: Document) => name === 'operators');
    t.equal(String(containerPort), imageEnv.ADMIN_PORT);
    for (const [probe, path] of [
      ['startupProbe', '/livez'],
      ['livenessProbe', '/livez'],
      ['readinessProbe', '/readyz'],
    ] as const) {
      t.strictSame(container[probe].httpGet, { path, port: 'operators' });
    }
  }
});

test('HAProxy checks readiness, and gateways drain for longer than it needs', async (t) => {
  for (const configuration of [await read('ops/ha/haproxy.cfg'), await read('ops/haproxy.cfg')]) {
    const [, gateways = ''] = /^backend gateways\n((?: .*\n?)+)/m.exec(configuration) ?? [];
    t.match(gateways, /^ {2}option httpchk GET \/readyz$/m);
    const [, seconds, answers] = /check inter (\d)s fall (\d)/.exec(gateways) ?? [];
    t.ok(Number(settingsExample.STOP_DRAIN_MS) >= 1000 * Number(seconds) * (Number(answers) + 1), gateways);
    t.match(configuration, /use_backend living if \{ nbsrv\(gateways\) eq 0 \}/);
    t.match(configuration, /^backend living\n(?: .*\n)* {2}option httpchk GET \/livez$/m);
  }
  for (const name of ['gateway-1', 'gateway-2']) {
    const { ports, environment } = compose.services[name];
    const published = ports.map((port: string) => port.split(':').at(-1));
    t.strictSame(published, [imageEnv.PORT, imageEnv.ADMIN_PORT], 'a proxy of the machine can ask');
    t.equal(environment.ADMIN_HOST, '0.0.0.0');
  }
});

test('docs/operate.md: its proxy table quotes ops/haproxy.cfg', async (t) => {
  const configuration = await read('ops/haproxy.cfg');
  const [, table = ''] = /^\| line \| effect \|\n(.*?)\n\n/ms.exec(await read('docs/operate.md')) ?? [];
  const cells = [...table.matchAll(/^\| (.+?) \|/gm)].map(([, cell = '']) => cell);
  const lines = cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, line = '']) => line));
  t.ok(lines.length > 8);
  for (const part of lines.flatMap((line) => line.split(' … '))) t.ok(configuration.includes(part), part);
});

test('ops/helm: references exist, and pods match the image and stop timeout', async (t) => {
  const { version } = JSON.parse(await read('package.json'));
  const chart = await readYaml('ops/helm/Chart.yaml');
  t.strictSame([chart.version, chart.appVersion], [version, version]);
  const values = await readYaml('ops/helm/values.yaml');
  const user = image.get('USER')?.[0];
  t.match(audit.spec.schedule, /^\d+ \d+ \* \* \*$/, 'once a day');
  for (const { spec } of [...deployments, job, audit.spec.jobTemplate]) {
    const pod = spec.template.spec;
    const [container] = pod.containers;
    isCommand(container.command);
    t.equal(container.image, values.image);
    t.ok(values.image.endsWith(`:${version}`), values.image);
    t.equal(`${pod.securityContext.runAsUser}:${pod.securityContext.runAsGroup}`, user);
    for (const { configMapRef, secretRef } of container.envFrom) {
      if (configMapRef) t.ok(objects.has(`ConfigMap/${configMapRef.name}`), configMapRef.name);
      else t.ok(Object.values(values.secrets).includes(secretRef.name), secretRef.name);
    }
  }
  for (const { spec, metadata } of deployments) {
    const { labels } = spec.template.metadata;
    const { terminationGracePeriodSeconds } = spec.template.spec;
    const settings = objects.get('ConfigMap/speechgate').data;
    t.ok(terminationGracePeriodSeconds > stopSeconds(settings), `${metadata.name}: ${terminationGracePeriodSeconds} s`);
    t.ok(Number(settings.STOP_DRAIN_MS) >= 5000, 'until no proxy of the cluster sends it requests any more');
    t.strictSame(spec.selector.matchLabels, labels);
    t.strictSame(objects.get(`PodDisruptionBudget/${metadata.name}`).spec.selector.matchLabels, labels);
    starts({ ...imageEnv, ...settings, DATABASE_URL: 'postgres://db/x' });
  }
  const gateway = objects.get('Deployment/speechgate-gateway').spec.template;
  const { spec } = objects.get('Service/speechgate');
  t.strictSame(spec.selector, gateway.metadata.labels);
  const port = gateway.spec.containers[0].ports.find(({ name }: Document) => name === spec.ports[0].targetPort);
  t.equal(String(port.containerPort), imageEnv.PORT);
});

test('ops/helm: it migrates first, scales gateways, and is watched by the shipped rules', async (t) => {
  t.equal(job.metadata.annotations['helm.sh/hook'], 'pre-install,pre-upgrade');
  const scaled = objects.get('HorizontalPodAutoscaler/speechgate-gateway').spec;
  t.ok(deployments.some(({ metadata }) => metadata.name === scaled.scaleTargetRef.name));
  t.ok(scaled.minReplicas >= 2 && scaled.maxReplicas >= scaled.minReplicas);
  const [rule] = objects.get('Ingress/speechgate').spec.rules;
  t.ok(objects.has(`Service/${rule.http.paths[0].backend.service.name}`));
  const [{ port, relabelings }] = objects.get('PodMonitor/speechgate').spec.podMetricsEndpoints;
  t.ok(
    deployments.every(({ spec }) =>
      spec.template.spec.containers[0].ports.some((each: Document) => each.name === port),
    ),
  );
  t.strictSame(relabelings, [{ targetLabel: 'job', replacement: 'speechgate' }]);
  t.strictSame(objects.get('PrometheusRule/speechgate').spec, await readYaml('ops/prometheus/alerts.yml'));
  const bare = (await renderChart()).map(({ kind }) => kind);
  t.ok(!bare.includes('Ingress') && !bare.includes('PodMonitor') && bare.includes('NetworkPolicy'));
});

test('ops/systemd: the audit runs once a day, and the migration is repeated', async (t) => {
  const timer = await readUnit('speechgate-audit.timer');
  t.match(timer.get('Timer.OnCalendar')?.[0] ?? '', /^\*-\*-\* \d\d:\d\d:\d\d$/);
  t.strictSame(timer.get('Timer.Persistent'), ['true']);
  const migration = await readUnit('speechgate-migrate.service');
  t.strictSame(migration.get('Service.Restart'), ['on-failure'], 'the database may start later');
});

test('ops/systemd: the units start existing programs after the migration', async (t) => {
  for (const name of UNITS) {
    const unit = await readUnit(name);
    isCommand(unit.get('Service.ExecStart')?.[0]?.split(' ') ?? []);
    if (!SERVICES.includes(name)) {
      t.strictSame(unit.get('Service.Type'), ['oneshot']);
      continue;
    }
    for (const key of ['Unit.Wants', 'Unit.After'])
      t.match(unit.get(key)?.[0] ?? '', /\bspeechgate-migrate\.service\b/, key);
    t.ok(Number(unit.get('Service.TimeoutStopSec')?.[0]) > stopSeconds(settingsExample), `${name}: TimeoutStopSec`);
    const set = assignments(unit.get('Service.Environment')?.[0]?.replaceAll('%i', '8081') ?? '');
    starts({ ...settingsExample, ...set, DATABASE_URL: 'postgres://db/x', JOB_SIGNING_SECRET: SECRET });
    const { outcome, ...rest } = readConfig({ ...set, DATABASE_URL: 'postgres://db/x' });
    t.equal(outcome, 'read');
    const { maxConnections } = 'config' in rest ? rest.config : assert.fail();
    t.ok(Number(unit.get('Service.LimitNOFILE')?.[0]) > maxConnections, `${name}: LimitNOFILE`);
  }
});

test('ops/speechgate-admin: commands run with the settings, user and folders of the units', async (t) => {
  const wrapper = await read('ops/speechgate-admin');
  const unit = await readUnit('speechgate-worker.service');
  const value = (key: string) => unit.get(`Service.${key}`)?.[0] ?? assert.fail(key);
  t.ok(wrapper.includes(`cd ${value('WorkingDirectory')}\n`));
  t.ok(wrapper.includes(`--env-file=${value('EnvironmentFile')} dist/speechgate.js admin "$@"`));
  t.ok(wrapper.includes(`runuser -u ${value('User')} -- env ${value('Environment').split(' ').at(-1)} `));
});

// Each catalog has its settings in examples/catalogs/README.md, and can be sold from.

const settingsIn = (recipe: string): Record<string, string> =>
  Object.fromEntries([...recipe.matchAll(/^([A-Z_]+)=(.+)$/gm)].map(([, name, value]) => [name, value]));

test('each catalog has a recipe, and each recipe a catalog', async (t) => {
  t.strictSame(recipes.map((recipe) => settingsIn(recipe).CATALOG_FILE).toSorted(), files.toSorted());
});

for (const recipe of recipes) {
  const settings = settingsIn(recipe);
  const file = settings.CATALOG_FILE ?? '';
  test(`${file}: its recipe serves each voice`, async (t) => {
    const read = readConfig({ DATABASE_URL: 'postgres://db.example/speechgate', ...settings });
    t.strictSame([read.outcome, read.misspelt], ['read', []]);
    const { models } = loadCatalog(file);
    const upstream = await testUpstream(t);
    const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
    const headers = { 'x-credit-account': await gateway.fund(500) };
    for (const { id, upstreamModel, voices } of models) {
      t.ok(recipe.includes(`\`${upstreamModel}\``), `${RECIPES} names ${upstreamModel}`);
      for (const voice of voices) {
        const json = { text: 'Hello world', model: id, voice: voice.id, speed: 1.5 };
        t.equal((await gateway.call('/tts', { method: 'POST', headers, json })).status, 200);
        t.strictSame(upstream.requests.at(-1)?.body, {
          ...{ model: upstreamModel, input: 'Hello world', voice: voice.upstreamVoice, speed: 1.5 },
          response_format: 'mp3',
        });
      }
    }
  });
}
