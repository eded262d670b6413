import { randomBytes } from 'node:crypto';
import { domainSeparator, pad, toEventSelector, toFunctionSelector } from 'viem';
import { DEFAULT_ASSET } from '../../../src/config/network.ts';
import type { Hex } from '../../../src/payments/x402/envelope.ts';
import { CHAIN_ID } from '../world.ts';
import { answer, type RawHandler } from './raw-http-server.ts';

interface Settlement {
  readonly from: Hex;
  readonly to: Hex;
  readonly value: string;
  readonly nonce: Hex;
}

const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
const TRANSFER = toEventSelector('Transfer(address,address,uint256)');
/** As USDC on Base: a full node adds this to a receipt. */
const BLOOM = `0x${'00'.repeat(256)}`;
const BLOCK_HASH = `0x${'b1'.repeat(32)}`;
const RELAYER = `0x${'f0'.repeat(20)}`;
const HEAD = 30_000_000;
const BALANCE = pad('0xe8d4a51000');
const DOMAIN_SELECTOR = toFunctionSelector('DOMAIN_SEPARATOR()');
const DOMAIN = domainSeparator({
  domain: { name: 'USD Coin', version: '2', chainId: CHAIN_ID, verifyingContract: DEFAULT_ASSET },
});
/** Settlements with a receipt. More than one round makes. */
const KEPT = 20_000;

/** A facilitator that settles every payment, and the chain's node. */
export class Chain {
  readonly #settled = new Map<Hex, Settlement>();

  /** `POST /verify`, `POST /settle`, `GET /supported`. */
  readonly facilitator: RawHandler = ({ path, body }, socket) => {
    socket.write(path === '/supported' ? SUPPORTED : answer('application/json', this.#facilitate(path, body)));
  };

  readonly node: RawHandler = ({ body }, socket) => {
    const { id, method, params } = JSON.parse(body.toString());
    const result = this.#result(method, params);
    const outcome = result === undefined ? { error: { code: -32601, message: method } } : { result };
    socket.write(answer('application/json', JSON.stringify({ jsonrpc: '2.0', id, ...outcome })));
  };

  #facilitate(path: string, body: Buffer): string {
    const { authorization } = JSON.parse(body.toString()).paymentPayload.payload as { authorization: Settlement };
    const payer = authorization.from;
    if (path === '/verify') return JSON.stringify({ isValid: true, payer });
    if (path !== '/settle') throw new Error(`nobody asks a facilitator for ${path}`);
    const transaction: Hex = `0x${randomBytes(32).toString('hex')}`;
    this.#settled.set(transaction, authorization);
    if (this.#settled.size > KEPT) this.#settled.delete(this.#settled.keys().next().value as Hex);
    return JSON.stringify({ success: true, payer, transaction, network: `eip155:${CHAIN_ID}` });
  }

  #result(method: string, [first]: [Hex | { readonly data: Hex }]): unknown {
    switch (method) {
      case 'eth_chainId':
        return `0x${CHAIN_ID.toString(16)}`;
      case 'eth_blockNumber':
        return `0x${HEAD.toString(16)}`;
      case 'eth_call':
        return (first as { data: Hex }).data === DOMAIN_SELECTOR ? DOMAIN : BALANCE;
      case 'eth_getTransactionReceipt': {
        const transaction = first as Hex;
        const settlement = this.#settled.get(transaction);
        return settlement ? receipt(transaction, settlement) : null;
      }
    }
  }
}

function receipt(transactionHash: Hex, { from, to, value, nonce }: Settlement) {
  const place = {
    blockHash: BLOCK_HASH,
    blockNumber: `0x${HEAD.toString(16)}`,
    transactionHash,
    transactionIndex: '0x5',
  };
  const log = { ...place, address: DEFAULT_ASSET.toLowerCase(), removed: false };
  const payer = pad(from.toLowerCase() as Hex);
  return {
    ...place,
    ...{ type: '0x2', status: '0x1', from: RELAYER, to: DEFAULT_ASSET.toLowerCase(), contractAddress: null },
    ...{ gasUsed: '0x15f90', cumulativeGasUsed: '0x5b8d80', effectiveGasPrice: '0x5f5e100', logsBloom: BLOOM },
    logs: [
      { ...log, logIndex: '0x10', topics: [AUTHORIZATION_USED, payer, nonce.toLowerCase()], data: '0x' },
      {
        ...{ ...log, logIndex: '0x11', topics: [TRANSFER, payer, pad(to.toLowerCase() as Hex)] },
        data: pad(`0x${BigInt(value).toString(16)}`),
      },
    ],
  };
}

const SUPPORTED = answer(
  'application/json',
  JSON.stringify({
    kinds: [{ x402Version: 2, scheme: 'exact', network: `eip155:${CHAIN_ID}` }],
    extensions: [],
    signers: { 'eip155:*': [RELAYER] },
  }),
);
