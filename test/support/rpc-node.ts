import type { Test } from 'tap';
import { encodeFunctionData, parseAbi } from 'viem';
import { serve } from './listening.ts';

interface RpcCall {
  readonly id: number;
  readonly method: string;
  readonly params: readonly unknown[];
}

type Lie = { readonly result: unknown } | { readonly error: object } | { readonly status: number } | undefined;

/** What a node makes of a call, at once or late; undefined passes the call on to the chain. */
export type Falsehood = (call: RpcCall) => Lie | Promise<Lie>;

export interface RpcNode {
  readonly url: string;
  /** The methods that were called, in order. */
  readonly calls: string[];
  falsehood: Falsehood;
}

const AUTHORIZATION_STATE = encodeFunctionData({
  abi: parseAbi(['function authorizationState(address authorizer, bytes32 nonce) view returns (bool)']),
  args: [`0x${'0'.repeat(40)}`, `0x${'0'.repeat(64)}`],
}).slice(0, 10);

/** Denies every use of an authorization: no logs, no receipts, and a state that is unused. */
export const denial: Falsehood = ({ method, params }) => {
  if (method === 'eth_getLogs') return { result: [] };
  if (method === 'eth_getTransactionReceipt') return { result: null };
  const [call] = params as [{ data?: string }];
  return method === 'eth_call' && call.data?.startsWith(AUTHORIZATION_STATE)
    ? { result: `0x${'0'.repeat(64)}` }
    : undefined;
};

/** Knows no finalized block, as some nodes do. */
export const unfinalized: Falsehood = ({ method, params }) =>
  method === 'eth_getBlockByNumber' && params[0] === 'finalized'
    ? { error: { code: -32602, message: 'invalid block tag' } }
    : undefined;

/** Allows the logs of so many blocks at once, and answers more with what is given. */
export const narrow =
  (blocks: number, refusal: Lie): Falsehood =>
  ({ method, params }) => {
    if (method !== 'eth_getLogs') return undefined;
    const [{ fromBlock, toBlock }] = params as [{ fromBlock: string; toBlock: string }];
    return Number(toBlock) - Number(fromBlock) + 1 > blocks ? refusal : undefined;
  };

/** Refuses whatever it is asked. */
export const failing: Falsehood = () => ({ error: { code: -32000, message: 'overloaded' } });

/** A node in front of the chain that counts the calls, and lies when it is told to. */
export async function startRpcNode(t: Test, target: string, falsehood: Falsehood = () => undefined): Promise<RpcNode> {
  const url = await serve(t, async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const call: RpcCall = JSON.parse(body.toString());
    node.calls.push(call.method);
    const lie = await node.falsehood(call);
    const answer = lie
      ? JSON.stringify({ jsonrpc: '2.0', id: call.id, ...lie })
      : await (await fetch(target, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).text();
    const status = lie && 'status' in lie ? lie.status : 200;
    response.writeHead(status, { 'content-type': 'application/json' }).end(answer);
  });
  const node: RpcNode = { url: `${url}/`, calls: [], falsehood };
  return node;
}
