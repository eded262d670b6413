import { randomUUID } from 'node:crypto';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { programCommand } from '../../../test/support/child.ts';
import { testDatabase } from '../../../test/support/database.ts';
import { startTcpProxy } from '../../../test/support/tcp-proxy.ts';
import type { World } from '../world.ts';
import { folderOf, startTarget, type Target } from './target.ts';

/** The gateway as `npm start` runs it. Limits by address are high because all callers share one address. */
export async function startOurs(world: World): Promise<Target> {
  const { url: databaseUrl } = await testDatabase(world.t);
  const folder = folderOf(world, randomUUID());
  const node = await startTcpProxy(world.t, world.chain.rpcUrl);
  const { address: payTo } = privateKeyToAccount(generatePrivateKey());
  return startTarget(world, {
    ...{ name: 'ours', payTo, node, command: programCommand('src/main.ts') },
    env: (port) => ({
      PORT: String(port),
      DATABASE_URL: databaseUrl,
      DATA_DIR: folder,
      LOG_LEVEL: 'warn',
      SPEECH_BASE_URL: world.upstreamUrl,
      SPEECH_TIMEOUT_MS: '10000',
      X402_PAY_TO: payTo,
      X402_FACILITATOR_URL: world.facilitator.url,
      X402_RPC_URL: node.url,
      QUOTE_SECRET: 'a-quote-secret-of-the-attacks-of-32-bytes-or-more',
      TRUST_PROXY: '127.0.0.1',
      RATE_LIMIT_MAX: '1000000',
      EDGE_RATE_LIMIT_MAX: '1000000',
    }),
    other: (_text, price) => ({
      method: 'POST',
      path: '/x402/deposit',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ amountMicroUsd: Number(price) }),
    }),
  });
}
