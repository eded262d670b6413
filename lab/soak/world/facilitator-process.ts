/** The sandbox's facilitator as a process on PORT. It settles with PRIVATE_KEY on the chain at RPC_URL. */
import type { Hex } from 'viem';
import { CHAIN_ID } from '../../../src/sandbox/chain/chain-client.ts';
import { startFacilitator } from '../../../src/sandbox/local-facilitator.ts';

const { RPC_URL = '', PRIVATE_KEY, PORT } = process.env;

await startFacilitator({ rpcUrl: RPC_URL, chainId: CHAIN_ID, privateKey: PRIVATE_KEY as Hex, port: Number(PORT) });
console.log('settles');
