import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import type { Address, LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../src/config/signing-keys.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type TestChain, wallet } from './chain.ts';
import { type TestCheckout, testCheckout } from './checkout.ts';
import { type Child, programCommand, startCommand } from './child.ts';
import { testDatabase } from './database.ts';
import { testFacilitator } from './facilitator.ts';
import { type Gateway, send } from './gateway.ts';
import { bookDeposit } from './prepaid.ts';
import { type RpcNode, startRpcNode } from './rpc-node.ts';
import { type StubUpstream, testUpstream } from './stub-upstream.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { QUOTE_SECRET } from './x402.ts';

/** A small installation whose gateway is a program of its own: `npm start` with every flow on, and what it needs. */
export interface Installation extends Pick<Gateway, 'call'> {
  readonly url: string;
  readonly adminUrl: string;
  /** What the gateway, and operators' commands, have in their environment. */
  readonly env: Record<string, string>;
  readonly db: Database;
  readonly upstream: StubUpstream;
  readonly checkout: TestCheckout;
  readonly facilitator: Awaited<ReturnType<typeof testFacilitator>>;
  readonly node: RpcNode;
  readonly payTo: Address;
  /** With credit. */
  readonly card: string;
  /** With a deposit. */
  readonly prepaid: LocalAccount;
  /** With USDC. */
  readonly direct: LocalAccount;
  /** Starts the gateway, with other settings where they are given; resolves when it listens. */
  start(changed?: Record<string, string>, command?: readonly string[]): Promise<Child>;
}

const START = programCommand('src/main.ts');

const FUNDS_CENTS = 500;
const FUNDS_MICRO_USD = 5_000_000n;
/** In a node's address, as its sellers put them. */
export const NODE_KEY = 'key-of-the-node';

export async function prepareInstallation(
  t: Test,
  chain: TestChain,
  settings: Record<string, string> = {},
): Promise<Installation> {
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
    call: (path, call) => send(url, path, call),
    start: async (changed = {}, command = START) => {
      const child = startCommand(t, command, { env: { ...env, ...changed } });
      await child.printed(/listens on/);
      return child;
    },
  };
}
