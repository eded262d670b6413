import type { Answer, Breaker, Exchange } from './http-link.ts';

interface Call {
  readonly id: number;
  readonly method: string;
  readonly params: readonly unknown[];
}

const hex = (number: bigint): string => `0x${number.toString(16)}`;
const TAGS = new Set<unknown>(['latest', 'pending', 'safe', 'finalized']);

/** A node that has not heard of the newest blocks yet, and is right about all others. */
export function laggingNode(blocks: bigint): Breaker {
  return async (exchange) => {
    const call: Call = JSON.parse(exchange.body.toString());
    const head = BigInt((await ask(exchange, 'eth_blockNumber', [])) as string);
    const known = head > blocks ? head - blocks : 0n;
    exchange.answer(answerTo(call, await answerOf(exchange, call, known)));
  };
}

async function answerOf(exchange: Exchange, { method, params }: Call, known: bigint): Promise<unknown> {
  if (method === 'eth_blockNumber') return hex(known);
  // Two blocks on top finalize one.
  const asKnown = (block: unknown) =>
    TAGS.has(block) ? hex(block === 'finalized' && known > 2n ? known - 2n : known) : block;
  if (method === 'eth_getBlockByNumber') {
    const [block, ...rest] = params;
    const number = asKnown(block);
    return BigInt(number as string) > known ? null : ask(exchange, method, [number, ...rest]);
  }
  if (method === 'eth_getTransactionReceipt') {
    const receipt = (await ask(exchange, method, params)) as { blockNumber: string } | null;
    return receipt && BigInt(receipt.blockNumber) > known ? null : receipt;
  }
  if (method === 'eth_call' || method === 'eth_getCode') {
    const [what, block] = params;
    return ask(exchange, method, [what, asKnown(block ?? 'latest')]);
  }
  if (method === 'eth_getLogs') {
    const logs = (await ask(exchange, method, params)) as readonly { blockNumber: string }[];
    return logs.filter(({ blockNumber }) => BigInt(blockNumber) <= known);
  }
  return ask(exchange, method, params);
}

async function ask(exchange: Exchange, method: string, params: readonly unknown[]): Promise<unknown> {
  const { body } = await exchange.pass(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })));
  const { result, error } = JSON.parse(body.toString());
  if (error !== undefined) throw new Error(`The chain refused ${method}: ${JSON.stringify(error)}`);
  return result;
}

const answerTo = ({ id }: Call, result: unknown): Answer => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, result })),
});
