import type { Socket } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { faultOf } from '../db/database-errors.ts';

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

export interface Call {
  readonly method?: Dispatcher.HttpMethod;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** The address to connect from. */
  readonly localAddress?: string | undefined;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** The value of a JSON text; undefined when it is none. */
  readonly json: unknown;
  /** The address of this side of the connection, as it is seen here. */
  readonly localAddress: string | undefined;
}

/** There was no answer. The message names no address and no secret. */
export class NoAnswer extends Error {}

/**
 * One request on a connection of its own, so that a balancer may hand each to another process. Redirects are not followed.
 * @throws NoAnswer
 */
export async function exchange(url: string, call: Call = {}): Promise<Answer> {
  const { method = 'GET', headers = {}, json, localAddress } = call;
  const { origin, pathname, search } = new URL(url);
  const connect = buildConnector({ timeout: TIMEOUT_MS });
  let socket: Socket | undefined;
  const client = new Client(origin, {
    connect: (options, callback) =>
      connect(options, (...result) => {
        socket = result[1] ?? undefined;
        callback(...result);
      }),
    maxResponseSize: MAX_ANSWER_BYTES,
    ...(localAddress !== undefined && { localAddress }),
  });
  try {
    const {
      statusCode,
      headers: answered,
      body,
    } = await client.request({
      method,
      path: pathname + search,
      headers: { 'user-agent': 'speechgate-doctor', ...(json !== undefined && JSON_TYPE), ...headers },
      ...(json !== undefined && { body: JSON.stringify(json) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const seen = socket?.localAddress;
    const text = await body.text();
    return { status: statusCode, headers: answered, text, json: parsed(text), localAddress: seen };
  } catch (error) {
    const { name, code } = error as { name?: string; code?: string };
    if (name === 'TimeoutError') throw new NoAnswer(`no answer within ${TIMEOUT_MS / 1000} s`);
    throw new NoAnswer(code ?? faultOf(error as Error) ?? 'no answer');
  } finally {
    await client.destroy();
  }
}

const JSON_TYPE = { 'content-type': 'application/json' };

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A member of a value of unknown shape; undefined where there is none. */
export const member = (value: unknown, ...path: readonly (string | number)[]): unknown =>
  path.reduce<unknown>(
    (inner, name) =>
      typeof inner === 'object' && inner !== null ? (inner as Record<string | number, unknown>)[name] : undefined,
    value,
  );
