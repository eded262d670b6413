/**
 * Each usual proxy before a gateway whose provider breaks off at twenty places: no caller program takes the answer for
 * whole, and each takes a whole one. Prints the table of docs/operate.md. Needs nginx, HAProxy, Caddy, lighttpd and h2o.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect as connectHttp2, type OutgoingHttpHeaders } from 'node:http2';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { startBridge } from '../../src/callers/bridge/bridge.ts';
import { AudioLostError, cardCredits, Speechgate } from '../../src/callers/client/index.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { callerCommand } from '../../test/support/caller-command.ts';
import { startCommand } from '../../test/support/child.ts';
import { startGateway } from '../../test/support/gateway.ts';
import { serve } from '../../test/support/listening.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { MP3_FRAME_BYTES } from '../../test/support/silent-audio.ts';
import { body, resetInBody, silentMp3, testUpstream } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';
import { accepts } from '../bench/programs.ts';

const HELLO = 'Hello world';
const FRAMES = 400;
const AUDIO = silentMp3(FRAMES * 24);
/** Half of them between two frames, half inside one. */
const CUTS = Array.from({ length: 20 }, (_, at) => (at * 20 + 2) * MP3_FRAME_BYTES + (at % 2) * 17 * at);

interface Config {
  readonly text: string;
  readonly command: (file: string) => string[];
}
type ProxyOf = (port: number, gateway: number, folder: string) => Config;

const nginx =
  (directives: string): ProxyOf =>
  (port, gateway, folder) => ({
    text: `daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr crit; events {}
http { access_log off; client_body_temp_path ${folder}; proxy_temp_path ${folder}; fastcgi_temp_path ${folder};
uwsgi_temp_path ${folder}; scgi_temp_path ${folder};
server { listen 127.0.0.1:${port}; location / { proxy_pass http://127.0.0.1:${gateway}; ${directives} } } }`,
    command: (file) => ['nginx', '-c', file],
  });
const haproxy =
  (bind: string): ProxyOf =>
  (port, gateway) => ({
    text: `defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 180s
  option http-no-delay
frontend speech
  bind 127.0.0.1:${port}${bind}
  default_backend gateways
backend gateways
  server one 127.0.0.1:${gateway}
`,
    command: (file) => ['haproxy', '-db', '-f', file],
  });
const lighttpd =
  (directive: string): ProxyOf =>
  (port, gateway, folder) => ({
    text: `server.modules = ("mod_proxy")
server.document-root = "${folder}"
server.bind = "127.0.0.1"
server.port = ${port}
server.upload-dirs = ("${folder}")
proxy.server = ("" => (("host" => "127.0.0.1", "port" => ${gateway})))
${directive}
`,
    command: (file) => ['lighttpd', '-D', '-f', file],
  });
const caddy: ProxyOf = (port, gateway, folder) => ({
  text: `{
  admin off
  storage file_system ${folder}
}
http://127.0.0.1:${port} {
  reverse_proxy 127.0.0.1:${gateway}
}
`,
  command: (file) => ['caddy', 'run', '--adapter', 'caddyfile', '--config', file],
});
const h2o: ProxyOf = (port, gateway, folder) => ({
  text: `user: ${process.env.USER ?? 'root'}
temp-buffer-path: ${folder}
listen:
  host: 127.0.0.1
  port: ${port}
hosts:
  default:
    paths:
      "/":
        proxy.reverse.url: "http://127.0.0.1:${gateway}/"
`,
  command: (file) => ['h2o', '-c', file],
});

const PROXIES: readonly (readonly [name: string, config: ProxyOf, isHttp2?: true])[] = [
  ['nginx, as it comes', nginx('')],
  ['nginx, `proxy_http_version 1.1`', nginx('proxy_http_version 1.1; proxy_set_header Connection "";')],
  ['HAProxy, HTTP/1.1 callers', haproxy('')],
  ['HAProxy, HTTP/2 callers', haproxy(' proto h2'), true],
  ['Caddy', caddy],
  ['lighttpd, as it comes', lighttpd('')],
  ['lighttpd, `server.stream-response-body = 1`', lighttpd('server.stream-response-body = 1')],
  ['h2o', h2o],
];

/** Passes requests on to a server of HTTP/2, and the ends of its answers as they are told. */
async function startHttp2Caller(t: Test, port: number): Promise<number> {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  session.on('error', () => {});
  t.teardown(() => session.destroy());
  const server = createServer(async (request, response) => {
    const { host: _host, connection: _hop, 'transfer-encoding': _coding, ...headers } = request.headers;
    const stream = session.request({
      ...headers,
      ':method': request.method,
      ':path': request.url,
    } as OutgoingHttpHeaders);
    request.pipe(stream);
    stream.on('response', ({ ':status': status = 502, ...told }) => {
      const fields = Object.entries(told).filter(([name]) => !name.startsWith(':'));
      response.writeHead(status, Object.fromEntries(fields) as Record<string, string>).flushHeaders();
    });
    stream.pipe(response);
    stream.on('error', () => response.socket?.resetAndDestroy());
    stream.on('aborted', () => response.socket?.resetAndDestroy());
  });
  return Number(new URL(await serve(t, server)).port);
}

async function startProxy(t: Test, config: ProxyOf, gatewayUrl: string, isHttp2 = false): Promise<string> {
  const folder = await temporaryFolder(t);
  const port = await freePort();
  const { text, command } = config(port, Number(new URL(gatewayUrl).port), folder);
  const file = join(folder, 'proxy.conf');
  await writeFile(file, text);
  const child = startCommand(t, command(file), {});
  await until(async () => {
    if (child.process.exitCode !== null) throw new Error(child.output());
    return accepts(port);
  });
  return `http://127.0.0.1:${isHttp2 ? await startHttp2Caller(t, port) : port}`;
}

/** Whether each program takes the audio that it buys through the proxy for whole. */
async function openCallers(t: Test, baseUrl: string, account: string) {
  const folder = await temporaryFolder(t);
  const env = { SPEECHGATE_URL: baseUrl, SPEECHGATE_ACCOUNT: account, SPEECHGATE_CONFIG_DIR: folder };
  const client = new Speechgate({ baseUrl, pay: cardCredits(account) });
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null, isDurable: false });
  t.teardown(() => bridge.close(1_000));
  const order = JSON.stringify({ text: HELLO });
  const headers = { 'content-type': 'application/json', 'x-credit-account': account };
  const isHeard = (url: string, init: RequestInit) =>
    fetch(url, { method: 'POST', ...init })
      .then(async (response) => (await response.arrayBuffer()) && response.ok)
      .catch(() => false);
  return {
    plain: () => isHeard(`${baseUrl}/tts`, { headers, body: order }),
    say: async () => (await callerCommand(env, 'say', HELLO, '--out', join(folder, 'say.mp3'))).code === 0,
    client: () =>
      client
        .speak({ text: HELLO })
        .then((speech) => speech.bytes())
        .then(
          () => true,
          (error) => {
            assert.ok(error instanceof AudioLostError, String(error));
            assert.equal(error.chargedMicroUsd, 0n, error.message);
            return false;
          },
        ),
    bridge: () =>
      isHeard(`${bridge.url}/audio/speech`, {
        headers: { 'content-type': 'application/json' },
        // The bridge answers an order that it has bought already by itself.
        body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: `${HELLO} ${randomUUID()}` }),
      }),
  };
}

const missing = [
  missingProgram('nginx', '-v'),
  missingProgram('haproxy', '-v'),
  missingProgram('caddy', 'version'),
  missingProgram('lighttpd', '-v'),
  missingProgram('h2o', '-v'),
].find((reason) => reason !== undefined);

test('callers notice a cut answer behind every proxy', { skip: missing ?? false }, async (t) => {
  const upstream = await testUpstream(t);
  const env = { SPEECH_BASE_URL: upstream.url, TRUST_PROXY: '127.0.0.1' };
  const gateway = await startGateway(t, env);
  const rows: string[] = [];
  for (const [name, config, isHttp2] of PROXIES) {
    await t.test(name, async (t) => {
      const account = await gateway.fund(10_000);
      const callers = await openCallers(t, await startProxy(t, config, gateway.url, isHttp2), account);
      const wrong: string[] = [];
      const hidden = { plain: 0, say: 0, client: 0, bridge: 0 };
      for (const [caller, hear] of Object.entries(callers) as [keyof typeof hidden, () => Promise<boolean>][]) {
        upstream.mode = body(AUDIO, { framing: 'chunked' });
        t.ok(await hear(), `${caller} refuses a whole answer`);
        for (const length of CUTS) {
          upstream.mode = resetInBody(AUDIO.subarray(0, length), { framing: 'chunked' });
          if (!(await hear())) continue;
          hidden[caller] += 1;
          if (caller !== 'plain') wrong.push(`${caller} at ${length}`);
        }
      }
      const told = (caller: keyof typeof hidden) => `${CUTS.length - hidden[caller]}`;
      rows.push(`| ${name} | ${told('plain')} | ${told('say')} | ${told('client')} | ${told('bridge')} |`);
      t.strictSame(wrong, []);
    });
  }
  const head = [
    '| cuts of 20 that are noticed | by HTTP alone | `say` | client | bridge |',
    '|---|---:|---:|---:|---:|',
  ];
  console.error([...head, ...rows].join('\n'));
});
