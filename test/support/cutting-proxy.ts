import { connect, createServer, type Socket } from 'node:net';
import type { Test } from 'tap';
import { serve } from './listening.ts';

/**
 * Where a connection is broken: a share of the request's or answer's head or body, from 0 to 1; or before anything, once
 * the request is through, or once the answer is.
 */
export type Cut =
  | { readonly at: 'connect' | 'sent' | 'working' | 'answered' }
  | { readonly at: 'request head' | 'request body' | 'answer head' | 'answer body'; readonly share: number };

/** The points at which the connection of a purchase breaks, from before the request leaves to after the last byte. */
export const CUTS: readonly Cut[] = [
  { at: 'connect' },
  { at: 'request head', share: 0.5 },
  { at: 'request body', share: 0 },
  { at: 'request body', share: 0.5 },
  { at: 'sent' },
  { at: 'working' },
  { at: 'answer head', share: 0 },
  { at: 'answer head', share: 0.5 },
  { at: 'answer body', share: 0 },
  { at: 'answer body', share: 0.5 },
  { at: 'answer body', share: 0.999 },
  { at: 'answered' },
];

export const nameOf = (cut: Cut): string => ('share' in cut ? `${cut.at} ${cut.share * 100} %` : cut.at);

export interface CuttingProxy {
  readonly url: string;
  target: string;
  /**
   * Breaks the connection of the next request whose head has this text, once. Resolves when that is done.
   * @param working resolves when the service is at work on it
   */
  cutNext(text: string, cut: Cut, working?: Promise<unknown>): Promise<void>;
}

interface Plan {
  readonly text: string;
  readonly cut: Cut;
  readonly working: Promise<unknown>;
  readonly broken: () => void;
  hasCut: boolean;
}

/** Stands between clients and a service, and breaks one connection at a point, as a network does: by a reset on both sides. */
export async function startCuttingProxy(t: Test): Promise<CuttingProxy> {
  let plan: Plan | undefined;
  const server = createServer((client) => {
    const { hostname, port } = new URL(proxy.target);
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      socket.on('error', () => {});
      socket.on('close', () => {
        client.destroy();
        upstream.destroy();
      });
    }
    follow(client, upstream, () => plan);
  });
  const url = await serve(t, server);
  const proxy: CuttingProxy = {
    url,
    target: url,
    cutNext: (text, cut, working = Promise.resolve()) =>
      new Promise((broken) => {
        plan = { text, cut, working, broken, hasCut: false };
      }),
  };
  return proxy;
}

/** Hands on what comes, until a request is to be cut: then request and answer are gathered, and go as far as they may. */
function follow(client: Socket, upstream: Socket, planned: () => Plan | undefined): void {
  let request = Buffer.alloc(0);
  let answer = Buffer.alloc(0);
  let cut: Cut | undefined;
  let isSent = false;
  const breakOff = () => {
    planned()?.broken();
    client.resetAndDestroy();
    upstream.resetAndDestroy();
  };
  client.on('data', (chunk) => {
    request = Buffer.concat([request, chunk]);
    const plan = planned();
    if (!isWhole(request)) return;
    if (!plan || plan.hasCut || !headOf(request).includes(plan.text)) {
      upstream.write(request);
      request = Buffer.alloc(0);
      return;
    }
    plan.hasCut = true;
    cut = plan.cut;
    if (cut.at === 'connect') return breakOff();
    const length = lengthTo(request, cut, 'request');
    isSent = length === request.length;
    upstream.write(request.subarray(0, length), () => {
      if (!isSent || plan.cut.at === 'sent') setImmediate(breakOff);
      else if (plan.cut.at === 'working') void plan.working.then(breakOff);
    });
  });
  upstream.on('data', (chunk) => {
    if (!cut || !isSent || cut.at === 'working' || cut.at === 'sent') return void client.write(chunk);
    answer = Buffer.concat([answer, chunk]);
    if (!isWhole(answer)) return;
    client.write(answer.subarray(0, lengthTo(answer, cut, 'answer')), () => setImmediate(breakOff));
  });
}

const headOf = (message: Buffer): string => message.toString('latin1', 0, message.indexOf('\r\n\r\n'));

/** Whether the message has all its bytes; one in chunks ends with an empty one. */
function isWhole(message: Buffer): boolean {
  const end = message.indexOf('\r\n\r\n');
  if (end === -1) return false;
  const head = headOf(message);
  if (/transfer-encoding: chunked/i.test(head)) return message.subarray(-7).toString('latin1').endsWith('0\r\n\r\n');
  const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
  return message.length >= end + 4 + length;
}

/** How many bytes of a message go through before the connection breaks. */
function lengthTo(message: Buffer, cut: Cut, kind: 'request' | 'answer'): number {
  const head = message.indexOf('\r\n\r\n') + 4;
  if (!('share' in cut) || !cut.at.startsWith(kind)) return message.length;
  return Math.floor(cut.at.endsWith('head') ? head * cut.share : head + (message.length - head) * cut.share);
}
