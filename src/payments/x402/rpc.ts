import { Ajv } from 'ajv';
import { Pool } from 'undici';
import type { Log } from 'viem';
import type { Address } from '../../config/payees.ts';
import { type OutsideCalls, type OutsideOutcome, outcomeOfStatus, UNMEASURED } from '../../observability/outside.ts';
import { numberToHex } from './abi.ts';
import type { Hex } from './envelope.ts';
import { postJson, shownCode } from './json-exchange.ts';

const TIMEOUT_MS = 5_000;
const BAD_REQUEST = 400;
const TOO_MANY_REQUESTS = 429;
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
/** Blocks whose logs are requested at once, from a node that allows it. */
export const RANGE_BLOCKS = 1_000n;

export class RpcError extends Error {
  /** The HTTP status, if it is why there is no answer. */
  readonly status: number | undefined;

  constructor(message: string, status?: number) {
    super(message);
    this.status = status;
  }
}

export class RpcRefusal extends RpcError {}

export interface Block {
  readonly number: bigint;
  readonly hash: Hex;
  /** Unix seconds. */
  readonly timestamp: bigint;
}

export type MinedLog = Log<Hex, Hex, false>;

export interface LogFilter {
  readonly address: Address;
  readonly topics: readonly (Hex | readonly Hex[] | null)[];
}

/** JSON-RPC over kept-alive connections. viem's transport needs six times the CPU. Throws RpcError. */
export class Rpc {
  readonly #pool: Pool;
  readonly #path: string;
  readonly #headers: Record<string, string>;
  readonly #onNarrowRange: ((blocks: bigint) => void) | undefined;
  readonly #calls: OutsideCalls;
  #id = 0;
  #rangeBlocks = RANGE_BLOCKS;

  /** @param onNarrowRange called when the node refuses the logs of RANGE_BLOCKS and returns those of fewer blocks */
  constructor(url: string, onNarrowRange?: (blocks: bigint) => void, calls: OutsideCalls = UNMEASURED) {
    this.#onNarrowRange = onNarrowRange;
    this.#calls = calls;
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

  async chainId(): Promise<number> {
    return Number(await this.request<Hex>('eth_chainId'));
  }

  /** @throws RpcRefusal for a block that the node does not know */
  async block(which: bigint | 'latest' | 'finalized'): Promise<Block> {
    const named = typeof which === 'bigint' ? numberToHex(which) : which;
    const block = await this.request<Record<keyof Block, Hex> | null>('eth_getBlockByNumber', [named, false]);
    if (!block) throw new RpcRefusal(`The chain's node does not have the block ${named}. Try again later.`);
    return { number: BigInt(block.number), hash: block.hash, timestamp: BigInt(block.timestamp) };
  }

  /** `0x` for an address without code. */
  code(address: Address): Promise<Hex> {
    return this.request('eth_getCode', [address, 'latest']);
  }

  /**
   * Returns the logs from a block on, and the last block that they cover. A refused range is halved, since nodes name
   * their limit in many ways. The next call tries slightly more than what was allowed.
   */
  async logs(filter: LogFilter, from: bigint, last: bigint): Promise<{ logs: readonly MinedLog[]; to: bigint }> {
    let blocks = this.#rangeBlocks;
    for (;;) {
      const to = from + blocks - 1n < last ? from + blocks - 1n : last;
      try {
        const range = { fromBlock: numberToHex(from), toBlock: numberToHex(to) };
        const logs = await this.request<readonly MinedLog[]>('eth_getLogs', [{ ...filter, ...range }]);
        if (blocks < this.#rangeBlocks) this.#onNarrowRange?.(blocks);
        const more = blocks + blocks / 8n + 1n;
        this.#rangeBlocks = more < RANGE_BLOCKS ? more : RANGE_BLOCKS;
        return { logs, to };
      } catch (error) {
        const isTooMuch = error instanceof RpcError && error.status !== TOO_MANY_REQUESTS;
        if (!isTooMuch || to === from) throw error;
        blocks = (to - from + 1n) / 2n;
      }
    }
  }

  /** @returns the result, in the form that `answers` has for the method */
  async request<T>(method: string, params: readonly unknown[] = []): Promise<T> {
    let exchanged: Exchanged;
    try {
      exchanged = await this.#calls.measure(method, () => this.#exchange(method, params), callResultOf);
    } catch (error) {
      throw new RpcError(`The chain's node gave no usable answer to ${method}${shownCode(error)}.`);
    }
    const { status, answer } = exchanged;
    if (status !== 200) {
      const Refused = status === BAD_REQUEST ? RpcRefusal : RpcError;
      throw new Refused(`The chain's node answered ${method} with status ${status}.`, status);
    }
    // Some nodes send `"error": null` beside a result.
    if ((answer?.error ?? null) !== null || answer?.result === undefined) {
      throw new RpcRefusal(`The chain's node answered ${method} with an error or without a result.`);
    }
    if (!isAnswer(method, answer.result)) {
      throw new RpcError(`The chain's node returned an invalid answer to ${method}.`);
    }
    return answer.result as T;
  }

  async #exchange(method: string, params: readonly unknown[]): Promise<Exchanged> {
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++this.#id, method, params });
    const call = { path: this.#path, headers: this.#headers, body };
    const { status, text } = await postJson(this.#pool, call, TIMEOUT_MS);
    return { status, answer: status === 200 ? JSON.parse(text) : null };
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }
}

interface Exchanged {
  readonly status: number;
  readonly answer: { readonly result?: unknown; readonly error?: unknown } | null;
}

function callResultOf({ status, answer }: Exchanged): OutsideOutcome {
  if (status !== 200) return outcomeOfStatus(status);
  return (answer?.error ?? null) === null ? 'ok' : 'rejected';
}

const hex = (digits: string) => ({ type: 'string', pattern: `^0x[0-9a-fA-F]${digits}$` });
const object = (properties: Record<string, object>) => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
});

const list = (items: object) => ({ type: 'array', items });

/** Block numbers and seconds, far below the maximum of the database's bigint. */
const NUMBER = hex('{1,13}');
const INDEX = hex('{1,7}');
const HASH = hex('{64}');
const LOG = object({
  address: hex('{40}'),
  topics: list(HASH),
  data: hex('*'),
  logIndex: INDEX,
  blockNumber: NUMBER,
  blockHash: HASH,
  transactionHash: HASH,
});
const RECEIPT = object({
  status: hex('{1,64}'),
  blockNumber: NUMBER,
  blockHash: HASH,
  transactionHash: HASH,
  logs: list(LOG),
});
const BLOCK = object({ number: NUMBER, hash: HASH, timestamp: NUMBER });

const orNull = (schema: object) => ({ anyOf: [{ type: 'null' }, schema] });

/** Each is compiled on its first use, and not checked, as in lib/json-schema.ts. */
const answers = new Ajv({
  validateSchema: false,
  schemas: {
    eth_chainId: NUMBER,
    eth_blockNumber: NUMBER,
    eth_getCode: hex('*'),
    eth_getLogs: list(LOG),
    eth_getTransactionReceipt: orNull(RECEIPT),
    eth_getBlockByNumber: orNull(BLOCK),
    eth_call: HASH,
  },
});

const isAnswer = (method: string, answer: unknown): boolean => answers.getSchema(method)?.(answer) === true;
