/** What a collector gets of requests of each flow, from a gateway with ops/otel.mjs that is a program of its own. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type Test, test } from 'tap';
import { testChain } from '../support/chain.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { type Installation, NODE_KEY, prepareInstallation } from '../support/installation.ts';
import { later, untilJob } from '../support/jobs.ts';
import { serve } from '../support/listening.ts';
import { domainOf, TTS, withCredential } from '../support/prepaid.ts';
import { projectFile } from '../support/project.ts';
import { ControlledStream, hangBeforeHeaders, silentMp3 } from '../support/stub-upstream.ts';
import { payFor } from '../support/x402.ts';

const SERVER = 2;
const CLIENT = 3;
const TRACE_ID = 'speechgate.trace_id';
const TEXT = 'canary-of-the-text';
const SPEECH: Call = { method: 'POST', json: { text: TEXT } };

const { chain, skip } = await testChain();

/** A span as OTLP writes it in JSON. */
interface WrittenSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  /** 1 internal, 2 server, 3 client. */
  readonly kind: number;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly KeyValue[];
}

interface KeyValue {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: number };
}

type Span = Omit<WrittenSpan, 'attributes'> & { readonly attributes: Record<string, unknown> };

interface Export {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] };
    readonly scopeSpans: readonly { readonly spans: readonly WrittenSpan[] }[];
  }[];
}

const toObject = (attributes: readonly KeyValue[]): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));

/** Takes traces over HTTP as a collector does. */
async function startCollector(t: Test) {
  const received: string[] = [];
  const url = await serve(t, async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    received.push(Buffer.concat(chunks).toString());
    response.setHeader('content-type', 'application/json').end('{}');
  });
  const exports = () => received.flatMap((body) => (JSON.parse(body) as Export).resourceSpans);
  return {
    url,
    received,
    spans: (): Span[] =>
      exports()
        .flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
        .map((span) => ({ ...span, attributes: toObject(span.attributes) })),
    resource: () => toObject(exports().at(-1)?.resource.attributes ?? []),
  };
}

interface Asked {
  readonly reply: Reply;
  /** What the caller sent that must not be told. */
  readonly secrets: readonly string[];
}

type Ask = (gateway: Installation, headers: Record<string, string>) => Promise<Asked>;

const secretsOf = ({ headers = {} }: Call, ...names: string[]) => names.map((name) => String(headers[name]));

interface TracedFlow {
  readonly ask: Ask;
  readonly route: string;
  /** Names of statements that no other request shares. */
  readonly statements: readonly string[];
  /** Names of calls to other services. */
  readonly outside: readonly string[];
  readonly calls: (gateway: Installation) => string[];
}

const FLOWS: Readonly<Record<string, TracedFlow>> = {
  card: {
    route: 'POST /tts',
    statements: ['hold'],
    outside: ['upstream synthesize'],
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const call = { ...SPEECH, headers: { 'x-credit-account': gateway.card, ...headers } };
      return { reply: await gateway.call('/tts', call), secrets: [gateway.card] };
    },
  },
  'text in the URL': {
    route: 'GET /tts',
    statements: ['hold'],
    outside: ['upstream synthesize'],
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const call = { headers: { 'x-credit-account': gateway.card, ...headers } };
      return { reply: await gateway.call(`/tts?text=${TEXT}`, call), secrets: [gateway.card] };
    },
  },
  prepaid: {
    route: 'POST /x402/tts',
    statements: ['hold_prepaid'],
    outside: ['upstream synthesize', 'store put'],
    calls: ({ upstream }) => [upstream.url],
    ask: async (gateway, headers) => {
      const signed = await withCredential(gateway.prepaid, domainOf(gateway.payTo), TTS, { ...SPEECH, headers });
      const secrets = secretsOf(signed, 'x-x402-account', 'x-x402-nonce', 'x-x402-signature');
      return { reply: await gateway.call(TTS, signed), secrets };
    },
  },
  direct: {
    route: 'POST /x402/tts',
    statements: ['reserve', 'settle', 'book_settlement'],
    outside: [
      'facilitator verify',
      'upstream synthesize',
      'store put',
      'facilitator settle',
      'node eth_getTransactionReceipt',
    ],
    calls: ({ upstream, facilitator, node }) => [upstream.url, facilitator.url, node.url],
    ask: async (gateway, headers) => {
      const { paid, reply, payload } = await payFor(gateway, gateway.direct, { ...SPEECH, headers });
      const { signature } = payload.payload as { signature: string };
      return { reply, secrets: [gateway.direct.address, signature, ...secretsOf(paid, 'payment-signature')] };
    },
  },
  job: {
    route: 'POST /tts',
    statements: ['hold', 'capture'],
    outside: ['upstream synthesize', 'store put'],
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

/** A response that is read while the provider still speaks. Returns its trace id, and when the rest was given. */
async function hearSlowly({ upstream, url, card }: Installation) {
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const speech = silentMp3(2000);
  const asked = fetch(`${url}/tts`, speechOf(card));
  await drip.opened;
  await drip.write(speech.subarray(0, 8000));
  const response = await asked;
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  await reader.read();
  const restGivenAt = Date.now();
  await drip.write(speech.subarray(8000));
  drip.end();
  for (let { done } = await reader.read(); !done; ) ({ done } = await reader.read());
  return { traceId: response.headers.get('x-trace-id'), restGivenAt };
}

/** A caller who disconnects before there is a response. */
async function leave({ upstream, url, card }: Installation) {
  upstream.mode = hangBeforeHeaders();
  const traceId = randomBytes(16).toString('hex');
  const { headers, ...call } = speechOf(card);
  const caller = new AbortController();
  const traced = { ...headers, traceparent: `00-${traceId}-${randomBytes(8).toString('hex')}-01` };
  const asked = fetch(`${url}/tts`, { ...call, headers: traced, signal: caller.signal }).catch(() => {});
  await upstream.waitForRequests(upstream.requests.length + 1);
  caller.abort();
  await asked;
  await upstream.requests.at(-1)?.closed;
  return traceId;
}

const speechOf = (card: string) => ({
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-credit-account': card },
  body: JSON.stringify({ text: TEXT }),
});

const isUnder = (spans: readonly Span[], span: Span, ancestor: Span): boolean => {
  if (span.spanId === ancestor.spanId) return true;
  const parent = spans.find(({ spanId }) => spanId === span.parentSpanId);
  return parent !== undefined && isUnder(spans, parent, ancestor);
};

test('a request of each flow is one trace from the caller to the provider', { skip }, async (t) => {
  const collector = await startCollector(t);
  const gateway = await prepareInstallation(t, chain, {
    NODE_OPTIONS: `--import=${projectFile('ops/otel.mjs').href}`,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_SERVICE_NAME: 'voices',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    // So that spans are sent only because the gateway stops.
    OTEL_BSP_SCHEDULE_DELAY: '600000',
  });
  const child = await gateway.start();
  const requests: (Asked & { flow: string; caller: { traceId: string; spanId: string }; heard: string })[] = [];
  for (const [flow, { ask }] of Object.entries(FLOWS)) {
    const caller = { traceId: randomBytes(16).toString('hex'), spanId: randomBytes(8).toString('hex') };
    const asked = await ask(gateway, { traceparent: `00-${caller.traceId}-${caller.spanId}-01` });
    t.ok(asked.reply.status < 300, asked.reply.text);
    requests.push({ ...asked, flow, caller, heard: String(gateway.upstream.requests.at(-1)?.headers.traceparent) });
  }
  const streamed = await hearSlowly(gateway);
  const given = await leave(gateway);
  t.equal(await child.stop(), 0, child.output());
  const lines: Record<string, unknown>[] = child
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

  for (const { flow, caller, heard, reply } of requests) {
    await t.test(flow, async (t) => {
      const { route, statements, outside, calls } = FLOWS[flow] as TracedFlow;
      const traceId = reply.headers.get('x-trace-id');
      const spans = collector.spans().filter((span) => span.traceId === caller.traceId);
      const root = spans.find(({ kind, attributes }) => kind === SERVER && attributes[TRACE_ID] === traceId);
      assert.ok(root, 'the request has a span');
      t.equal(root.name, route);
      t.equal(root.parentSpanId, caller.spanId);
      t.equal(root.attributes['http.response.status_code'], reply.status);
      const under = spans.filter((span) => isUnder(spans, span, root));
      t.ok(
        under.some(({ attributes }) =>
          /insert into "?(transfer|x402_payment)/.test(String(attributes['db.query.text'])),
        ),
        'its statements are under it',
      );
      for (const name of outside)
        t.ok(
          under.some((span) => span.name === name),
          `the call ${name} is under it`,
        );
      for (const name of statements) {
        t.ok(
          under.some((span) => span.name.replace(/_\d+ /, ' ').startsWith(`pg.query:${name} `)),
          `the statement ${name} is under it`,
        );
      }
      for (const port of calls(gateway).map((url) => Number(new URL(url).port))) {
        const call = under.find(({ kind, attributes }) => kind === CLIENT && attributes['server.port'] === port);
        t.ok(call, `the call to port ${port} is under it`);
      }
      const [, heardTrace, heardSpan] = heard.split('-');
      t.equal(heardTrace, caller.traceId);
      t.ok(
        under.some(({ spanId }) => spanId === heardSpan),
        'the provider is told of the call',
      );
      const logged = lines.filter((line) => line.traceId === traceId);
      t.ok(logged.some(({ msg }) => msg === 'request'));
      for (const line of logged) t.equal(line.trace_id, caller.traceId, JSON.stringify(line));
    });
  }
  await t.test('a span lasts as long as its response', async (t) => {
    const span = collector.spans().find(({ attributes }) => attributes[TRACE_ID] === streamed.traceId);
    assert.ok(span, 'the request has a span');
    t.ok(Number(BigInt(span.endTimeUnixNano) / 1_000_000n) >= streamed.restGivenAt);
  });
  await t.test('a request whose caller disconnects has a span', async (t) => {
    const spans = collector.spans().filter(({ traceId, kind }) => traceId === given && kind === SERVER);
    t.strictSame(
      spans.map(({ name }) => name),
      ['POST /tts'],
    );
  });
  await t.test('no text, account, signature or key is told (R40)', async (t) => {
    const sent = collector.received.join().toLowerCase();
    const { SPEECH_API_KEY, QUOTE_SECRET } = gateway.env;
    const secrets = [...requests.flatMap(({ secrets }) => secrets), TEXT, NODE_KEY, SPEECH_API_KEY, QUOTE_SECRET];
    for (const secret of secrets) t.ok(!sent.includes(String(secret).toLowerCase()), `${secret} is not told`);
  });
  await t.test('tracing leaves the ledger correct', async (t) => {
    const { audit } = await import('../../src/ledger/audit.ts');
    t.strictSame(await audit(gateway.db), []);
  });
  await t.test('spans name the service and its environment', async (t) => {
    const { 'service.name': name, 'deployment.environment.name': environment } = collector.resource();
    t.strictSame([name, environment], ['voices', 'test']);
  });
});

test('the command that installs the packages names the tested versions', async (t) => {
  const { devDependencies } = JSON.parse(await readFile(projectFile('package.json'), 'utf8'));
  const isTraced = ([name]: [string, unknown]) => name.startsWith('@opentelemetry/');
  const tested = Object.entries(devDependencies)
    .filter(isTraced)
    .map((entry) => entry.join('@'));
  const text = await readFile(projectFile('ops/otel.mjs'), 'utf8');
  const [, packages = ''] = /npm i --no-save --prefix ops ((?:.*\\\n)+.*)/.exec(text) ?? [];
  t.strictSame(packages.match(/@\S+/g), tested);
});
