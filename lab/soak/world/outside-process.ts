/** An external service as a process on PORT. Its name is the argument; it prints `ready`. */
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Hex } from 'viem';

const { DATA_DIR = '', BUCKET = '', OPERATIONS_PORT, PRIVATE_KEY, RPC_URL = '', SECRET_KEY = '' } = process.env;
const port = Number(process.env.PORT);

const THINKS_MS = 10;
const PIECES = 4;
const PIECE_MS = 150;

/** Each imports only what it needs. */
const SERVICES: Readonly<Record<string, () => Promise<unknown>>> = {
  facilitator: async () => {
    const [{ startFacilitator }, { CHAIN_ID }] = await Promise.all([
      import('../../../src/sandbox/local-facilitator.ts'),
      import('../../../src/sandbox/chain/chain-client.ts'),
    ]);
    await startFacilitator({ rpcUrl: RPC_URL, chainId: CHAIN_ID, privateKey: PRIVATE_KEY as Hex, port });
  },
  // It keeps objects in memory, so faults freeze it or break its link but never kill it.
  store: async () => (await import('../../../test/support/s3-server.ts')).startS3Server(BUCKET, port),
  checkout: sell,
  upstream: speak,
};
await SERVICES[process.argv[2] ?? '']?.();
console.log('ready');

/** The dashboard's operations are at OPERATIONS_PORT: `POST /<operation>` with the arguments as a JSON array. */
async function sell(): Promise<void> {
  const [{ startCheckout }, { operationsOn }] = await Promise.all([
    import('../../../src/sandbox/checkout/checkout-server.ts'),
    import('../../../test/support/checkout.ts'),
  ]);
  const checkout = await startCheckout({ dataDir: DATA_DIR, port, secretKey: SECRET_KEY });
  const operations = new Map<string, (...given: never[]) => Promise<unknown>>(Object.entries(operationsOn(checkout)));
  createServer(async (request, response) => {
    const operate = operations.get(String(request.url).slice(1));
    const [status, answer] = await Promise.resolve(operate?.(...((await json(request)) as never[]))).then(
      (result) => [200, result] as const,
      (error: Error) => [409, { message: error.message }] as const,
    );
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }).listen(Number(OPERATIONS_PORT), '127.0.0.1');
}

/** Sends `speechOf` each text after a few milliseconds, slow texts in pieces. */
async function speak(): Promise<void> {
  const { SLOWLY, speechOf } = await import('../callers/text.ts');
  createServer(async (request, response) => {
    if (request.method !== 'POST') {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"object":"list","data":[]}');
      return;
    }
    const { input: text } = (await json(request)) as { input: string };
    const audio = speechOf(text);
    await sleep(THINKS_MS);
    const isSlow = text.startsWith(SLOWLY);
    response.writeHead(200, { 'content-type': 'audio/mpeg', ...(!isSlow && { 'content-length': audio.length }) });
    if (!isSlow) return void response.end(audio);
    const size = Math.ceil(audio.length / PIECES);
    for (let at = 0; at < audio.length; at += size) {
      response.write(audio.subarray(at, at + size));
      await sleep(PIECE_MS);
    }
    response.end();
  }).listen(port, '127.0.0.1');
}
