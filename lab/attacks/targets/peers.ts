import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { PROJECT } from '../../bench/targets/program.ts';
import type { World } from '../world.ts';
import { folderOf, startTarget, type Target } from './target.ts';

/** Peers have one fixed price: what a text of 60 characters costs at our target. */
const PRICE = '$0.00108';

export type PeerName = 'express' | 'hono' | 'mppx';

/** Another project's server in front of the same speech server. Its setup is in lab/attacks/peers/. */
export function startPeer(world: World, name: PeerName): Promise<Target> {
  const { address: payTo } = privateKeyToAccount(generatePrivateKey());
  const store = folderOf(world, randomUUID());
  return startTarget(world, {
    ...{ name, payTo, command: [process.execPath, join(PROJECT, 'lab/attacks/peers', `${name}.mjs`)] },
    env: (port) => ({
      NODE_ENV: 'production',
      PORT: String(port),
      PAY_TO: payTo,
      PRICE,
      STORE: store,
      FACILITATOR_URL: world.facilitator.url,
      UPSTREAM_ORIGIN: new URL(world.upstreamUrl).origin,
    }),
    other: (text) => ({
      method: 'POST',
      path: '/x402/other',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ text }),
    }),
  });
}
