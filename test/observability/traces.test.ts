/** What a collector gets of requests of each flow, from a gateway that is a program of its own. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { type Test, test } from 'tap';
import { testChain } from '../support/chain.ts';
import type { Child } from '../support/child.ts';
import { attributesOf, type Collector, type Span, startCollector, TRACED } from '../support/collector.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { type Installation, NODE_KEY, prepareInstallation } from '../support/installation.ts';
import { later, untilJob } from '../support/jobs.ts';
import { domainOf, TTS, withCredential } from '../support/prepaid.ts';
import { until } from '../support/until.ts';
import { payFor } from '../support/x402.ts';

const SERVER = 2;
const CLIENT = 3;
const TEXT = 'canary of the text';
const SPEECH: Call = { method: 'POST', json: { text: TEXT } };
const JSON_TELEMETRY = { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_BSP_SCHEDULE_DELAY: '100' };

const { chain, skip } = await testChain();

/** A caller's own trace, in which the request is a part. */
function callersTrace() {
  const traceId = randomBytes(16).toString('hex');
  const spanId = randomBytes(8).toString('hex');
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-01` } };
}

interface Asked {
  readonly reply: Reply;
  /** The caller's header that must not be told. */
  readonly secrets: readonly string[];
}

type Ask = (gateway: Installation, headers: Record<string, string>) => Promise<Asked>;

const secretsOf = ({ headers = {} }: Call, ...names: string[]) => names.map((name) => String(headers[name]));

const FLOWS: Readonly<Record<string, { ask: Ask; route: string; calls: (gateway: Installation) => string[] }>> = {
  card: {
    route: 'POST /tts',
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const call = { ...SPEECH, headers: { 'x-credit-account': gateway.card, ...headers } };
      return { reply: await gateway.call('/tts', call), secrets: [gateway.card] };
    },
  },
  prepaid: {
    route: 'POST /x402/tts',
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const signed = await withCredential(gateway.prepaid, domainOf(gateway.payTo), TTS, { ...SPEECH, headers });
      const secrets = secretsOf(signed, 'x-x402-account', 'x-x402-nonce', 'x-x402-signature');
      return { reply: await gateway.call(TTS, signed), secrets };
    },
  },
  direct: {
    route: 'POST /x402/tts',
    calls: ({ upstream, facilitator, node }) => [upstream.url, facilitator.url, node.url],
    ask: async (gateway, headers) => {
      const { paid, reply, payload } = await payFor(gateway, gateway.direct, { ...SPEECH, headers });
      const { signature } = payload.payload as { signature: string };
      return { reply, secrets: [gateway.direct.address, signature, ...secretsOf(paid, 'payment-signature')] };
    },
  },
  job: {
    route: 'POST /tts',
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const call: typeof gateway.call = (path, call) =>
        gateway.call(path, { ...call, headers: { ...call?.headers, ...headers } });
      const reply = await later({ call }, gateway.card, { text: TEXT });
      await untilJob(gateway, reply.json.jobId, 'completed');
      return { reply, secrets: [gateway.card, reply.json.jobId] };
    },
  },
};

const isUnder = (spans: readonly Span[], span: Span, ancestor: Span): boolean => {
  if (span.spanId === ancestor.spanId) return true;
  const parent = spans.find(({ spanId }) => spanId === span.parentSpanId);
  return parent !== undefined && isUnder(spans, parent, ancestor);
};

const linesOf = (child: Child): Record<string, unknown>[] =>
  child
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

async function startTraced(t: Test) {
  const collector = await startCollector(t);
  const gateway = await prepareInstallation(t, chain, {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    ...TRACED,
    OTEL_SERVICE_NAME: 'voices',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    ...JSON_TELEMETRY,
  });
  const child = await gateway.start();
  return { gateway, child, collector };
}

/** The spans of a trace, once those are there that make it whole. */
async function traceOf(collector: Collector, traceId: string, isWhole: (spans: Span[]) => boolean): Promise<Span[]> {
  const spans = () => collector.spans().filter((span) => span.traceId === traceId);
  await until(() => isWhole(spans()), 20_000).catch((error) => {
    const seen = spans().map((span) => ({ name: span.name, ...attributesOf(span), 'db.query.text': undefined }));
    throw new Error(`${error.message}: ${JSON.stringify(seen, null, 1)}`);
  });
  return spans();
}

async function isTraced(flow: string, { gateway, child, collector }: Awaited<ReturnType<typeof startTraced>>) {
  const { ask, route, calls } = FLOWS[flow] as (typeof FLOWS)[string];
  const own = callersTrace();
  const { reply, secrets } = await ask(gateway, own.headers);
  assert.ok(reply.status < 300, reply.text);
  const traceId = reply.headers.get('x-trace-id');
  const ports = calls(gateway).map((url) => Number(new URL(url).port));
  const spans = await traceOf(
    collector,
    own.traceId,
    (spans) =>
      ports.every((port) => spans.some((span) => attributesOf(span)['server.port'] === port)) &&
      spans.every(({ parentSpanId: id }) => id === own.spanId || spans.some(({ spanId }) => spanId === id)) &&
      spans.some((span) => attributesOf(span)['speechgate.trace_id'] === traceId),
  );
  const root = spans.find((span) => span.kind === SERVER && attributesOf(span)['speechgate.trace_id'] === traceId);
  assert.ok(root, 'the request has a span');
  assert.equal(root.name, route);
  assert.equal(root.parentSpanId, own.spanId);
  assert.equal(attributesOf(root)['http.response.status_code'], reply.status);
  const under = spans.filter((span) => isUnder(spans, span, root));
  const texts = under.map((span) => String(attributesOf(span)['db.query.text'] ?? ''));
  assert.ok(
    texts.some((text) => /insert into "?(transfer|x402_payment)/.test(text)),
    'its statements are under it',
  );
  for (const port of ports) {
    const call = under.find((span) => span.kind === CLIENT && attributesOf(span)['server.port'] === port);
    assert.ok(call, `the call to port ${port} is under it`);
  }
  const heard = String(gateway.upstream.requests.at(-1)?.headers.traceparent);
  const [, heardTrace, heardSpan] = heard.split('-');
  assert.equal(heardTrace, own.traceId);
  assert.ok(
    under.some(({ spanId }) => spanId === heardSpan),
    'the provider is told of the call',
  );
  await until(() => linesOf(child).some(({ msg, traceId: id }) => msg === 'request' && id === traceId));
  const lines = linesOf(child).filter((line) => line.traceId === traceId);
  for (const line of lines) assert.equal(line.trace_id, own.traceId, JSON.stringify(line));

  const sent = Buffer.concat(collector.received.map(({ body }) => body)).toString();
  for (const secret of [
    ...secrets,
    TEXT,
    NODE_KEY,
    gateway.env.SPEECH_API_KEY as string,
    gateway.env.QUOTE_SECRET as string,
  ]) {
    assert.ok(!sent.toLowerCase().includes(secret.toLowerCase()), `${secret} is not told`);
  }
}

test('a request of each flow is one trace from the caller to the provider', {
  skip,
}, async (t) => {
  const traced = await startTraced(t);
  for (const flow of Object.keys(FLOWS)) await t.test(flow, () => isTraced(flow, traced));
  await t.test('tracing leaves the ledger correct', async () => {
    const { audit } = await import('../../src/ledger/audit.ts');
    assert.deepEqual(await audit(traced.gateway.db), []);
  });
  await t.test('spans name the service and its environment', async () => {
    const { 'service.name': name, 'deployment.environment.name': environment } = traced.collector.resource();
    assert.deepEqual([name, environment], ['voices', 'test']);
  });
});
