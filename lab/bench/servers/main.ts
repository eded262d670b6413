/**
 * All parts behind the targets in one process: the speech upstream, the facilitator and the chain's node. It sends its
 * ports to its parent, which can change the upstream's behavior.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type Socket } from 'node:net';
import { domainSeparator, pad, toEventSelector, toFunctionSelector } from 'viem';
import { DEFAULT_ASSET } from '../../../src/config/network.ts';
import type { Hex } from '../../../src/payments/x402/envelope.ts';
import { MP3_FRAME_BYTES, silentMp3 } from '../../../test/support/silent-audio.ts';
import { AT_ONCE, AUDIO_BYTES, CHAIN_ID } from '../world.ts';

export interface StubPorts {
  readonly upstream: number;
  readonly facilitator: number;
  readonly node: number;
}

/** How the upstream speaks. */
export interface Manner {
  readonly delayMs: number;
  /** Pieces of the chunked response, one each `pieceMs`. 1 sends all at once with a length. */
  readonly pieces: number;
  readonly pieceMs: number;
}

/** Writes a complete response, now or later. */
type Handler = (path: string, body: Buffer, socket: Socket) => void;

interface Settlement {
  readonly from: Hex;
  readonly to: Hex;
  readonly value: string;
  readonly nonce: Hex;
}

const HEAD_END = Buffer.from('\r\n\r\n');

/**
 * An HTTP server for prebuilt responses. It needs a third of node:http's CPU, which the targets share.
 * Accepts requests with `content-length` or without a body, and closes the connection on any other.
 */
function listen(handle: Handler): Promise<number> {
  const server = createServer({ noDelay: true }, (socket) => {
    let waiting: Buffer = Buffer.alloc(0);
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk: Buffer) => {
      waiting = waiting.length === 0 ? chunk : Buffer.concat([waiting, chunk]);
      for (;;) {
        const headEnd = waiting.indexOf(HEAD_END);
        if (headEnd === -1) return;
        const head = waiting.toString('latin1', 0, headEnd);
        if (/\r\n(?:transfer-encoding|expect):/i.test(head)) return socket.destroy();
        const start = headEnd + HEAD_END.length;
        const end = start + Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
        if (waiting.length < end) return;
        const body = waiting.subarray(start, end);
        waiting = waiting.subarray(end);
        handle(head.slice(head.indexOf(' ') + 1, head.indexOf(' HTTP/')), body, socket);
      }
    });
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
  });
}

function response(type: string, body: Buffer | string, length = `content-length: ${Buffer.byteLength(body)}`): Buffer {
  const head = `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\n${length}\r\nconnection: keep-alive\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), Buffer.from(body)]);
}
const json = (value: object): Buffer => response('application/json', JSON.stringify(value));

/** An MP3 frame lasts 24 ms. */
const AUDIO = silentMp3((AUDIO_BYTES / MP3_FRAME_BYTES) * 24);
const SPEECH = response('audio/mpeg', AUDIO);
let manner: Manner = AT_ONCE;

const speak: Handler = (_path, _body, socket) => {
  const { delayMs, pieces } = manner;
  const answer = pieces > 1 ? () => drip(socket) : () => socket.write(SPEECH);
  if (delayMs > 0) setTimeout(answer, delayMs);
  else answer();
};

function drip(socket: Socket): void {
  const { pieces, pieceMs } = manner;
  const size = Math.ceil(AUDIO.length / pieces);
  socket.write(response('audio/mpeg', '', 'transfer-encoding: chunked'));
  const say = (at: number) => {
    const part = AUDIO.subarray(at, at + size);
    const isLast = at + size >= AUDIO.length;
    const end = isLast ? '\r\n0\r\n\r\n' : '\r\n';
    socket.write(Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from(end)]));
    if (!isLast) setTimeout(say, pieceMs, at + size);
  };
  say(0);
}

/** Settlements with a receipt. More than one round makes. */
const KEPT = 20_000;
const NETWORK = `eip155:${CHAIN_ID}`;
const RELAYER = `0x${'f0'.repeat(20)}`;
const SUPPORTED = json({
  kinds: [{ x402Version: 2, scheme: 'exact', network: NETWORK }],
  extensions: [],
  signers: { 'eip155:*': [RELAYER] },
});
const settled = new Map<Hex, Settlement>();

/** Settles every payment: `POST /verify`, `POST /settle`, `GET /supported`. */
const facilitate: Handler = (path, body, socket) => {
  if (path === '/supported') {
    socket.write(SUPPORTED);
    return;
  }
  const { authorization } = JSON.parse(body.toString()).paymentPayload.payload as { authorization: Settlement };
  const payer = authorization.from;
  if (path === '/verify') {
    socket.write(json({ isValid: true, payer }));
    return;
  }
  const transaction: Hex = `0x${randomBytes(32).toString('hex')}`;
  settled.set(transaction, authorization);
  if (settled.size > KEPT) settled.delete(settled.keys().next().value as Hex);
  socket.write(json({ success: true, payer, transaction, network: NETWORK }));
};

const HEAD = '0x1c9c380';
const BALANCE = pad('0xe8d4a51000');
const DOMAIN_SELECTOR = toFunctionSelector('DOMAIN_SEPARATOR()');
const DOMAIN = domainSeparator({
  domain: { name: 'USD Coin', version: '2', chainId: CHAIN_ID, verifyingContract: DEFAULT_ASSET },
});

const results: Readonly<Record<string, (first: never) => unknown>> = {
  eth_chainId: () => `0x${CHAIN_ID.toString(16)}`,
  eth_blockNumber: () => HEAD,
  eth_call: ({ data }: { data: Hex }) => (data === DOMAIN_SELECTOR ? DOMAIN : BALANCE),
  eth_getTransactionReceipt: (transaction: Hex) => {
    const settlement = settled.get(transaction);
    return settlement ? receipt(transaction, settlement) : null;
  },
};

const node: Handler = (_path, body, socket) => {
  const { id, method, params } = JSON.parse(body.toString());
  const result = results[method]?.(params[0] as never);
  const outcome = result === undefined ? { error: { code: -32601, message: method } } : { result };
  socket.write(json({ jsonrpc: '2.0', id, ...outcome }));
};

const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
const TRANSFER = toEventSelector('Transfer(address,address,uint256)');

/** As of USDC on Base, with all that a full node adds. */
function receipt(transactionHash: Hex, { from, to, value, nonce }: Settlement) {
  const place = {
    blockHash: `0x${'b1'.repeat(32)}`,
    blockNumber: HEAD,
    transactionHash,
    transactionIndex: '0x5',
  };
  const asset = DEFAULT_ASSET.toLowerCase();
  const log = { ...place, address: asset, removed: false };
  const payer = pad(from.toLowerCase() as Hex);
  const transfer = [TRANSFER, payer, pad(to.toLowerCase() as Hex)];
  return {
    ...place,
    ...{ type: '0x2', status: '0x1', from: RELAYER, to: asset, contractAddress: null },
    ...{ gasUsed: '0x15f90', cumulativeGasUsed: '0x5b8d80', effectiveGasPrice: '0x5f5e100' },
    logsBloom: `0x${'00'.repeat(256)}`,
    logs: [
      { ...log, logIndex: '0x10', topics: [AUTHORIZATION_USED, payer, nonce.toLowerCase()], data: '0x' },
      { ...log, logIndex: '0x11', topics: transfer, data: pad(`0x${BigInt(value).toString(16)}`) },
    ],
  };
}

const ports: StubPorts = {
  upstream: await listen(speak),
  facilitator: await listen(facilitate),
  node: await listen(node),
};
process.on('message', (wanted: Manner) => {
  manner = wanted;
  process.send?.('ready');
});
process.once('disconnect', () => process.exit());
process.send?.(ports);
