#!/usr/bin/env bash
# @fastify/otel 0.21.2: the span of a request ends before a streamed body begins, and a request given up leaves no span.
#
# One would guess that it lasts as long as the response, as the span of instrumentation-http does. But it ends in an
# onSend hook, which Fastify calls with the stream before it reads from it: half a second of audio is a span of a few
# milliseconds. A caller who leaves while the handler works never gets as far as onSend, so just the slowest requests
# are missing from the traces and from latencies computed from them. The way out is to run instrumentation-http as well
# and to take durations from its span, which is the parent.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund fastify@5.12.8 @fastify/otel@0.21.2 @opentelemetry/api@1.9.1 \
  @opentelemetry/instrumentation-http@0.222.0 @opentelemetry/sdk-trace-node@2.12.1
cat > run.cjs <<'JS'
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { Readable } = require('node:stream');
const { setTimeout: sleep } = require('node:timers/promises');
const { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-node');

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const { HttpInstrumentation } = require('@opentelemetry/instrumentation-http');
new HttpInstrumentation().setTracerProvider(provider);
const { FastifyOtelInstrumentation } = require('@fastify/otel');
const instrumentation = new FastifyOtelInstrumentation();
instrumentation.setTracerProvider(provider);
const { get } = require('node:http');
const fastify = require('fastify');

async function* audio() {
  for (let chunk = 0; chunk < 5; chunk += 1) {
    await sleep(100);
    yield 'audio';
  }
}

async function main() {
  const app = fastify();
  await app.register(instrumentation.plugin());
  app.get('/streamed', () => Readable.from(audio()));
  app.get('/slow', () => new Promise(() => {}));
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address();

  const seen = {};
  for (const path of ['/streamed', '/slow']) {
    exporter.reset();
    const received = once(app.server, 'request');
    const request = get({ host: '127.0.0.1', port, path, agent: false });
    request.on('error', () => {}).on('response', (response) => response.resume());
    const [, response] = await received;
    const closed = once(response, 'close');
    if (path === '/slow') request.destroy();
    await closed;
    await sleep(100);
    seen[path] = {};
    for (const { name, duration } of exporter.getFinishedSpans()) {
      if (name !== 'request' && name !== `GET ${path}`) continue;
      seen[path][name] = duration[0] * 1000 + duration[1] / 1e6 < 400 ? 'short' : 'as long as the audio';
    }
  }
  console.log(seen);
  assert.deepEqual(seen, {
    '/streamed': { request: 'short', 'GET /streamed': 'as long as the audio' },
    '/slow': { 'GET /slow': 'short' },
  });
  await app.close();
}
main();
JS
node run.cjs
