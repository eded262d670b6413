import { zeroAddress } from 'viem';
import { MULTICALL } from '../../../src/sandbox/chain/chain-client.ts';
import { narrow, type RpcNode, unfinalized } from '../../support/rpc-node.ts';
import { type Cases, changing } from './case.ts';

const OF_NODE = ['node-logs', 'asset', 'payee'];

/** What is wrong with the chain, its nodes, the token, and those who are paid. */
export const FAULTS_OF_CHAIN: Cases = {
  'a node of another chain': {
    finds: ['fault', 'node', /node of chain 84532, but X402_NETWORK is eip155:8453/],
    skipped: OF_NODE,
    make: changing('node', {
      falsehood: ({ method }) => (method === 'eth_chainId' ? { result: '0x14a34' } : undefined),
    }),
  },
  'an unreachable node': {
    finds: ['fault', 'node', /no usable answer to eth_chainId/],
    skipped: OF_NODE,
    make: () => ({ own: { X402_RPC_URL: 'http://127.0.0.1:1' } }),
  },
  'a node that lags': {
    finds: ['fault', 'node', /s old: the node lags/],
    make: (scene, t, places) => {
      const old = `0x${Math.floor(Date.now() / 1000 - 600).toString(16)}`;
      const falsehood: RpcNode['falsehood'] = async ({ method, params }) => {
        if (method !== 'eth_getBlockByNumber' || params[0] !== 'latest') return undefined;
        const block = await scene.chain.client.getBlock();
        return { result: { number: `0x${block.number.toString(16)}`, hash: block.hash, timestamp: old } };
      };
      return changing('node', { falsehood })(scene, t, places);
    },
  },
  'a chain clock that is ahead': {
    finds: ['fault', 'node', /s ahead of the clock of this machine/],
    make: async ({ chain: { client } }, t) => {
      const id = await client.snapshot();
      t.teardown(() => client.revert({ id }));
      await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(Date.now() / 1000) + 300) });
      await client.mine({ blocks: 1 });
      return {};
    },
  },
  'a node without finalized blocks': {
    finds: ['warning', 'node', /no finalized block/],
    make: changing('node', { falsehood: unfinalized }),
  },
  'a node without logs': {
    finds: ['fault', 'node-logs', /does not return logs of a day ago/],
    make: changing('node', {
      falsehood: ({ method }) =>
        method === 'eth_getLogs' ? { error: { code: -32000, message: 'history has been pruned' } } : undefined,
    }),
  },
  'a node that gives logs of few blocks': {
    finds: ['warning', 'node-logs', /refuses the logs of 1000 blocks at once and returns those of 250/],
    make: changing('node', { falsehood: narrow(400, { status: 400 }) }),
  },
  'a missing asset': {
    finds: ['fault', 'asset', /names no contract: eip155:\d+ has none at/],
    make: async ({ unused }, t) => ({
      all: { X402_ASSET: '0x00000000000000000000000000000000000000f1', DATABASE_URL: (await unused(t)).url },
    }),
  },
  'an asset that is not a token': {
    finds: ['fault', 'asset', /reports no decimals/],
    make: async ({ unused }, t) => ({ all: { X402_ASSET: MULTICALL, DATABASE_URL: (await unused(t)).url } }),
  },
  'another EIP-712 domain': {
    finds: ['fault', 'asset', /domain is not USDC, version 2/],
    make: () => ({ all: { X402_ASSET_NAME: 'USDC' } }),
  },
  'a contract as payee': {
    finds: ['fault', 'payee', /is a contract/],
    make: () => ({ all: { X402_PAY_TO: MULTICALL } }),
  },
  'the token as payee': {
    finds: ['fault', 'payee', /is the address of the token itself/],
    make: ({ chain }) => ({ all: { X402_PAY_TO: chain.asset } }),
  },
  'the zero address as payee': {
    finds: ['fault', 'payee', /is the zero address/],
    make: () => ({ all: { X402_PAY_TO: zeroAddress } }),
  },
};
