import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type Test, test } from 'tap';
import { testChain } from '../support/chain.ts';
import { programCommand, startCommand } from '../support/child.ts';
import { startCollector, TRACED } from '../support/collector.ts';
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

test('without --import a gateway loads nothing of OpenTelemetry but its API', { skip }, async (t) => {
  assert.deepEqual(await loaded(t, ENDPOINT), []);
});

test('a traced gateway without its collector serves and stops, and logs the fault', { skip }, async (t) => {
  const gateway = await prepareInstallation(t, chain, { ...ENDPOINT, ...TRACED, OTEL_BSP_SCHEDULE_DELAY: '100' });
  const child = await gateway.start();
  assert.equal((await speak(gateway)).status, 200);
  await child.printed(/ECONNREFUSED/);
  assert.equal(await child.stop(), 0);
});

for (const [how, settings] of Object.entries({
  'with a disabled SDK': { OTEL_SDK_DISABLED: 'true' },
  'without an exporter': { OTEL_TRACES_EXPORTER: 'none' },
})) {
  test(`a traced gateway ${how} sends nothing`, { skip }, async (t) => {
    const collector = await startCollector(t);
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
    const gateway = await prepareInstallation(t, chain, { ...endpoint, ...TRACED, ...settings });
    const child = await gateway.start();
    assert.equal((await speak(gateway)).status, 200);
    assert.equal(await child.stop(), 0);
    assert.deepEqual(collector.received, []);
  });
}

for (const [name, value] of Object.entries({ OTEL_TRACES_EXPORTER: 'zipkin', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' })) {
  test(`${name}=${value} ends the start and names the fix`, { skip }, async (t) => {
    const child = startCommand(t, programCommand('src/main.ts'), { env: { ...TRACED, [name]: value } });
    assert.equal(await child.ended(), 78);
    assert.match(child.output(), new RegExp(`${value}\\. Set `));
    assert.ok(child.output().includes(name));
  });
}

/** Sends requests until the collector has a trace of one by protobuf, which is the standard's default. */
async function isCollected(t: Test, settings: Record<string, string>) {
  const collector = await startCollector(t);
  const gateway = await prepareInstallation(t, chain, {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20collector',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    ...TRACED,
    ...settings,
  });
  const child = await gateway.start();
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
    return sent('/v1/traces', 'POST /tts');
  });
  // What the pg instrumentation and the undici instrumentation tell of such a request.
  await until(() => sent('/v1/traces', 'insert into transfer') && sent('/v1/traces', 'http.response.status_code'));
  await child.printed(/"trace_id":"[0-9a-f]{32}"/);
  assert.equal(await child.stop(), 0);
}

test('every process of a gateway is traced', { skip }, (t) => isCollected(t, { WEB_CONCURRENCY: '2' }));

test('pending spans are sent before the process exits', { skip }, async (t) => {
  const collector = await startCollector(t);
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_BSP_SCHEDULE_DELAY: '3600000' };
  const gateway = await prepareInstallation(t, chain, { ...endpoint, ...TRACED });
  const child = await gateway.start();
  assert.equal((await speak(gateway)).status, 200);
  assert.equal(await child.stop(), 0);
  assert.ok(collector.received.some(({ body }) => body.includes('POST /tts')));
});
