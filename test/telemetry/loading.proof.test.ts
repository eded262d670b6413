import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type Test, test } from 'tap';
import { testChain } from '../support/chain.ts';
import { programCommand } from '../support/child.ts';
import { startCollector } from '../support/collector.ts';
import { type Installation, prepareInstallation } from '../support/installation.ts';
import { until } from '../support/until.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const WATCH = pathToFileURL(join(PROJECT, 'test/support/loaded-modules.mjs')).href;
/** The API, which does nothing by itself, is loaded by prom-client in any case. */
const TELEMETRY = /@opentelemetry\/(?!api\/)|@fastify\/otel|in-the-middle|\/telemetry\//;

const { chain, skip } = await testChain();

/** The modules of telemetry that a gateway has loaded by the time that it has answered a request and stopped. */
async function loaded(t: Test, settings: Record<string, string>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-loaded-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'modules');
  const gateway = await prepareInstallation(t, chain, settings);
  const child = await gateway.start({ NODE_OPTIONS: `--import=${WATCH}`, LOADED_MODULES: file });
  assert.equal((await speak(gateway)).status, 200);
  assert.equal(await child.stop(), 0);
  const modules = (await readFile(file, 'utf8')).split('\n');
  assert.ok(modules.some((path) => path.includes('node_modules/pg/')));
  assert.ok(modules.some((path) => path.endsWith('/app.js')));
  return modules.filter((path) => TELEMETRY.test(path));
}

const speak = (gateway: Installation) =>
  gateway.call('/tts', { method: 'POST', json: { text: 'Hello' }, headers: { 'x-credit-account': gateway.card } });

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' };

for (const [how, settings] of Object.entries({
  'without a standard variable': {},
  'that is disabled': { ...ENDPOINT, OTEL_SDK_DISABLED: 'true' },
  'with variables that turn nothing on': { OTEL_SERVICE_NAME: 'voices', OTEL_TRACES_SAMPLER: 'always_on' },
})) {
  test(`a gateway ${how} loads nothing of OpenTelemetry`, { skip }, async (t) => {
    assert.deepEqual(await loaded(t, settings), []);
  });
}

test('one whose collector is away serves and stops as ever, and says what is wrong', { skip }, async (t) => {
  const gateway = await prepareInstallation(t, chain, { ...ENDPOINT, OTEL_BSP_SCHEDULE_DELAY: '100' });
  const child = await gateway.start();
  assert.equal((await speak(gateway)).status, 200);
  await child.printed(/telemetry does not work as it should/);
  assert.equal(await child.stop(), 0);
});

test('with metrics only, no module is wrapped', { skip }, async (t) => {
  const modules = await loaded(t, { ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' });
  assert.ok(modules.some((path) => path.includes('exporter-metrics-otlp-proto')));
  assert.deepEqual(
    modules.filter((path) => /exporter-trace|instrumentation|in-the-middle|fastify\/otel/.test(path)),
    [],
  );
});

/** Sends requests until the collector has a trace of one by protobuf, which is the standard's default. */
async function isCollected(t: Test, command: readonly string[], settings: Record<string, string>) {
  const collector = await startCollector(t);
  const gateway = await prepareInstallation(t, chain, {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20collector',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    OTEL_METRIC_EXPORT_INTERVAL: '500',
    ...settings,
  });
  const child = await gateway.start({}, command);
  const sent = (path: string, text: string) =>
    collector.received.some(
      ({ path: at, headers, body }) =>
        at === path &&
        headers['content-type'] === 'application/x-protobuf' &&
        headers.authorization === 'Bearer collector' &&
        body.includes(text),
    );
  await until(async () => {
    assert.equal((await speak(gateway)).status, 200);
    return sent('/v1/traces', 'POST /tts') && sent('/v1/metrics', 'speechgate_holds_total');
  });
  // What the pg instrumentation and the undici instrumentation tell of such a request.
  await until(() => sent('/v1/traces', 'insert into transfer') && sent('/v1/traces', 'http.response.status_code'));
  await child.printed(/"trace_id":"[0-9a-f]{32}"/);
  assert.equal(await child.stop(), 0);
}

test('each of several processes is traced', { skip }, (t) =>
  isCollected(t, [process.execPath, '--import', 'tsx', 'src/main.ts'], { WEB_CONCURRENCY: '2' }),
);

test('a compiled gateway is traced too', { skip }, (t) => isCollected(t, programCommand('src/main.ts'), {}));
