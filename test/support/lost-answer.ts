import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Test } from 'tap';
import { BASE_URL, type Call, type Gateway, type GatewayOptions, type Reply, send } from './gateway.ts';
import { fundedWallet, type PrepaidGateway, startPrepaidGateway, TTS } from './prepaid.ts';
import { requestBytes } from './raw-http.ts';
import { until } from './until.ts';

/** Sends a request on a connection of its own, and reads nothing. */
export async function sendUnread(url: string, path: string, call: Call): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(requestBytes(path, call));
  return socket;
}

/** Has the request answered, and resets the connection then, as the kernel does for a client that dies with bytes unread. */
export async function loseAnswer(url: string, path: string, call: Call): Promise<void> {
  const socket = await sendUnread(url, path, call);
  await once(socket, 'readable');
  socket.resetAndDestroy();
}

/** Fetches what a link of an answer leads to, from where the gateway listens. */
export const follow = (url: string, link: string, call: Call = {}): Promise<Reply> =>
  send(url, link.replace(BASE_URL, ''), call);

export const PRICE = 198;
export const FUNDS = 100_000n;
export const SECRET = 'a secret of links of 32 bytes or more';
export const GET = `${TTS}?text=Hello`;
const SPENT = { field: 'x-x402-nonce', rule: 'unique' };
const NOTHING = { state: 'not_charged', amountMicroUsd: 0 };
/** The details that another request with a spent nonce gets. */
export const BARE = { ...SPENT, payment: NOTHING };
/** Those of the identical request, by what became of the first. */
export const PENDING = { ...SPENT, state: 'pending', payment: { state: 'unknown', amountMicroUsd: PRICE } };
export const CHARGED = {
  ...SPENT,
  state: 'charged',
  chargedMicroUsd: PRICE,
  payment: { state: 'charged', amountMicroUsd: PRICE },
};
export const RESTORED = { ...SPENT, state: 'restored', chargedMicroUsd: 0, payment: NOTHING };

/** A gateway and a wallet with FUNDS deposited. */
export async function startWithFunds(t: Test, env: Record<string, string> = {}, options: GatewayOptions = {}) {
  const gateway = await startPrepaidGateway(t, { JOB_SIGNING_SECRET: SECRET, ...env }, options);
  return { gateway, ...(await fundedWallet(gateway, FUNDS)) };
}

export const detailsOf = ({ json }: Reply) => json.error.details;

/** Repeats the request until it is known what became of the first one. */
export async function concluded(gateway: Gateway, call: Call, path = TTS): Promise<Reply> {
  let reply = await gateway.call(path, call);
  await until(async () => {
    assert.deepEqual([reply.status, reply.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
    if (detailsOf(reply).state !== 'pending') return true;
    reply = await gateway.call(path, call);
    return false;
  });
  return reply;
}

/** The request was charged once, and its audio is offered to who repeats it; tells the link. */
export async function assertOffered(gateway: PrepaidGateway, call: Call, audio: Buffer, path = TTS): Promise<string> {
  let again = await concluded(gateway, call, path);
  // The audio is put into the store beside the capture.
  await until(async () => {
    if (detailsOf(again).audio !== undefined) return true;
    again = await gateway.call(path, call);
    return false;
  });
  const { audio: link, ...details } = detailsOf(again);
  const { chargedMicroUsd } = details;
  const payment = { state: 'charged', amountMicroUsd: chargedMicroUsd };
  assert.deepEqual(details, { ...CHARGED, chargedMicroUsd, payment });
  assert.equal(again.headers.get('x-x402-charged'), String(chargedMicroUsd));
  const fetched = await follow(gateway.url, link);
  assert.deepEqual([fetched.status, fetched.headers.get('content-type')], [200, 'audio/mpeg']);
  assert.ok(fetched.bytes.equals(audio));
  assert.equal(fetched.headers.get('cache-control'), 'private, no-store');
  return link;
}
