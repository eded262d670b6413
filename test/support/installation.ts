import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../src/config/signing-keys.ts';
import { openDatabase } from '../../src/db/database.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type TestChain, wallet } from './chain.ts';
import { testCheckout } from './checkout.ts';
import { type Child, programCommand, startCommand } from './child.ts';
import { testDatabase } from './database.ts';
import { testFacilitator } from './facilitator.ts';
import { type Call, send } from './gateway.ts';
import { bookDeposit } from './prepaid.ts';
import { startRpcNode } from './rpc-node.ts';
import { testUpstream } from './stub-upstream.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { QUOTE_SECRET } from './x402.ts';

export type Installation = Awaited<ReturnType<typeof prepareInstallation>>;

const START = programCommand('src/main.ts');

const FUNDS_CENTS = 500;
const FUNDS_MICRO_USD = 5_000_000n;
/** In a node's address, as its sellers put them. */
export const NODE_KEY = 'key-of-the-node';

/** A small installation whose gateway is a program of its own: `npm start` with every flow on, and what it needs. */
export async function prepareInstallation(t: Test, chain: TestChain, settings: Record<string, string> = {}) {
  const dataDir = await temporaryFolder(t);
  const { url: databaseUrl } = await testDatabase(t);
  const db = openDatabase(databaseUrl, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const upstream = await testUpstream(t);
  const checkout = await testCheckout(t);
  const facilitator = await testFacilitator(t, chain);
  const node = await startRpcNode(t, chain.rpcUrl);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const keys = join(dataDir, 'keys.json');
  await writeFile(keys, JSON.stringify(rotateKeys(undefined, new Date())), { mode: 0o600 });
  const [port, adminPort] = [await freePort(), await freePort()];
  /** What the gateway, and operators' commands, have in their environment. */
  const env: Record<string, string> = {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    DATABASE_URL: databaseUrl,
    DATA_DIR: dataDir,
    SPEECH_BASE_URL: upstream.url,
    SPEECH_API_KEY: 'key-of-the-provider',
    SPEECH_TIMEOUT_MS: '10000',
    ...checkout.env,
    X402_PAY_TO: payTo,
    X402_FACILITATOR_URL: facilitator.url,
    X402_RPC_URL: `${node.url}${NODE_KEY}`,
    QUOTE_SECRET,
    SIGNING_KEYS_FILE: keys,
    FEEDBACK_SECRET: 'the secret of the installation under test',
    RATE_LIMIT_MAX: '10000',
    EDGE_RATE_LIMIT_MAX: '1000000',
    ...settings,
  };
  /** With credit, a deposit, and USDC. */
  const { accountId: card } = await creditTopUp(db, {
    ...{ topUpId: randomUUID(), sessionId: `cs_test_${randomUUID()}`, accountId: randomUUID() },
    ...{ livemode: false, amountCents: FUNDS_CENTS, challengeId: null },
  });
  const prepaid = privateKeyToAccount(generatePrivateKey());
  await bookDeposit(db, prepaid.address.toLowerCase(), FUNDS_MICRO_USD);
  const url = `http://127.0.0.1:${port}`;
  return {
    ...{ url, env, db, upstream, checkout, facilitator, node, payTo, card, prepaid },
    adminUrl: `http://127.0.0.1:${adminPort}`,
    direct: await wallet(chain.client, FUNDS_MICRO_USD),
    call: (path: string, call?: Call) => send(url, path, call),
    /** Starts the gateway, with other settings where they are given; resolves when it listens. */
    start: async (changed: Record<string, string> = {}, command: readonly string[] = START): Promise<Child> => {
      const child = startCommand(t, command, { env: { ...env, ...changed } });
      await child.printed(/listens on/);
      return child;
    },
  };
}
