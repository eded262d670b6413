import { Pool } from 'undici';
import { BaseError, BlockNotFoundError } from 'viem';
import { postJson } from './json-exchange.ts';
import { isAnswer } from './node-answers.ts';

const TIMEOUT_MS = 5_000;
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

/** The chain's node could not be reached in time, or refused a call. Holds nothing that it wrote. */
export class RpcError extends Error {}

/** The node has answered, and refused the call. */
export class RpcRefusal extends RpcError {}

/**
 * What a call through viem has failed with, as an RpcError: viem's own errors repeat what was sent and what the node
 * has written.
 */
export function rpcErrorOf(error: unknown): RpcError {
  const own = error instanceof BaseError ? error.walk((cause) => cause instanceof RpcError) : error;
  if (own instanceof RpcError) return own;
  if (error instanceof BlockNotFoundError) return new RpcRefusal("The chain's node does not know a block.");
  return new RpcError("The chain's node gave an answer that can't be read.");
}

/**
 * JSON-RPC calls to the node of a chain over kept-alive HTTP connections: the provider (EIP-1193) of a viem client. viem's
 * own HTTP transport makes every call with fetch, at six times the CPU.
 */
export class Rpc {
  readonly #pool: Pool;
  readonly #path: string;
  readonly #headers: Record<string, string>;
  #id = 0;

  constructor(url: string) {
    const { origin, pathname, search, username, password } = new URL(url);
    this.#pool = new Pool(origin, {
      connections: 64,
      connectTimeout: TIMEOUT_MS,
      keepAliveTimeout: 4_000,
      maxResponseSize: MAX_ANSWER_BYTES,
    });
    this.#path = pathname + search;
    const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`);
    this.#headers = {
      'content-type': 'application/json',
      ...(username && { authorization: `Basic ${credentials.toString('base64')}` }),
    };
  }

  /** @throws RpcError */
  async request({ method, params = [] }: { method: string; params?: unknown }): Promise<unknown> {
    let answer: { result?: unknown; error?: unknown };
    try {
      const body = JSON.stringify({ jsonrpc: '2.0', id: ++this.#id, method, params });
      const { status, text } = await postJson(
        this.#pool,
        { path: this.#path, headers: this.#headers, body },
        TIMEOUT_MS,
      );
      if (status !== 200) throw new RpcError(`The chain's node answered ${method} with status ${status}.`);
      answer = JSON.parse(text);
    } catch (error) {
      if (error instanceof RpcError) throw error;
      // What is thrown may quote the answer, or name the address; its code does not.
      const code =
        error instanceof Error && 'code' in error && typeof error.code === 'string' ? ` (${error.code})` : '';
      throw new RpcError(`The chain's node gave no answer to ${method}${code}.`);
    }
    if (answer?.error !== undefined || answer?.result === undefined) {
      throw new RpcRefusal(`The chain's node refused ${method}.`);
    }
    if (!isAnswer(method, answer.result)) {
      throw new RpcError(`The chain's node answered ${method} with something that is no such answer.`);
    }
    return answer.result;
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }
}
