import type { Socket } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { faultOf } from '../../db/database-errors.ts';

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

export interface Call {
  readonly method?: Dispatcher.HttpMethod;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly localAddress?: string | undefined;
}

export interface ProbeResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** Undefined if the text is not JSON. */
  readonly json: unknown;
  readonly localAddress: string | undefined;
}

/** The message contains no address and no secret. */
export class NoAnswer extends Error {}

/**
 * Sends one request on its own connection, so that a balancer can pick another process. Follows no redirects.
 * @throws NoAnswer
 */
export async function exchange(url: string, call: Call = {}): Promise<ProbeResponse> {
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
  const type = json === undefined ? {} : { 'content-type': 'application/json' };
  try {
    const response = await client.request({
      method,
      path: pathname + search,
      headers: { 'user-agent': 'speechgate-doctor', ...type, ...headers },
      ...(json !== undefined && { body: JSON.stringify(json) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const seen = socket?.localAddress;
    const text = await response.body.text();
    return { status: response.statusCode, headers: response.headers, text, json: parsed(text), localAddress: seen };
  } catch (error) {
    const { name, code } = error as { name?: string; code?: string };
    if (name === 'TimeoutError') throw new NoAnswer(`no answer within ${TIMEOUT_MS / 1000} s`);
    throw new NoAnswer(code ?? faultOf(error as Error) ?? 'no answer');
  } finally {
    await client.destroy();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const member = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((inner, name) => (inner as Record<string, unknown> | null | undefined)?.[name], value);
