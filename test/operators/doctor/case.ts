import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Test } from 'tap';
import { serve } from '../../support/listening.ts';
import type { Env, Options, Scene } from './scene.ts';

/** How a configuration is made wrong in one point. What it changes of the scene, the test's end undoes. */
export interface Wrong {
  /** Settings that all have, the service and doctor. */
  readonly all?: Env;
  /** Settings of doctor only. */
  readonly own?: Env;
  readonly options?: Options;
}

export interface Case {
  readonly finds: readonly [state: 'fault' | 'warning', check: string, message: RegExp];
  /** Checks that can't be made then. */
  readonly skipped?: readonly string[];
  /** @param places where the service will listen that is started for it, if `all` is given */
  readonly make: (scene: Scene, t: Test, places: Env) => Promise<Wrong> | Wrong;
  /** Why it can't be made on this machine. */
  readonly skip?: string | false;
}

/** By what is wrong. */
export type Cases = Readonly<Record<string, Case>>;

/** Changes the database as its owner until the test ends. */
export const untilTheEnd =
  (change: string, undo: string): Case['make'] =>
  async ({ sql }, t) => {
    t.teardown(() => sql(undo));
    await sql(change);
    return {};
  };

/** Gives a part of the scene other values until the test ends. */
export const changing =
  <Name extends 'checkout' | 'node' | 'upstream'>(name: Name, values: Partial<Scene[Name]>): Case['make'] =>
  (scene, t) => {
    const part = scene[name];
    const before = Object.fromEntries(Object.keys(values).map((key) => [key, part[key as keyof Scene[Name]]]));
    t.teardown(() => Object.assign(part, before));
    Object.assign(part, values);
    return {};
  };

/** Hands a request on to another server, with some headers changed, and its answer back. */
export function passOn(
  target: string,
  incoming: IncomingMessage,
  response: ServerResponse,
  changed: Readonly<Record<string, string>> = {},
): void {
  const { method, url, headers } = incoming;
  const outgoing = request(`${target}${url}`, { method, headers: { ...headers, ...changed } }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outgoing.on('error', () => response.destroy());
  incoming.pipe(outgoing);
}

/** What a proxy makes of the X-Forwarded-For that it gets, and of the address that it gets it from. */
type Forwarding = (received: string | undefined, peer: string) => string;

/** A proxy in front of the service on this port. */
export const proxy = (t: Test, port: string | undefined, forwarded: Forwarding): Promise<string> =>
  serve(t, (incoming, response) => {
    const received = incoming.headers['x-forwarded-for'] as string | undefined;
    const address = forwarded(received, incoming.socket.remoteAddress ?? '');
    passOn(`http://127.0.0.1:${port}`, incoming, response, { 'x-forwarded-for': address });
  });

/** As a proxy is meant to. */
export const adding: Forwarding = (received, peer) => (received ? `${received}, ${peer}` : peer);
