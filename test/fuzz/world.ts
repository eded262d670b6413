import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../src/x402/signing-keys.ts';
import { type TestChain, wallet } from '../support/chain.ts';
import { type TestCheckout, testCheckout } from '../support/checkout.ts';
import { testDatabase } from '../support/database.ts';
import { mineSteadily } from '../support/deposit.ts';
import { testFacilitator } from '../support/facilitator.ts';
import { type Gateway, send } from '../support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { later, untilJob } from '../support/jobs.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';
import { QUOTE_SECRET } from '../support/x402.ts';
import type { Known } from './contract-requests.ts';
import { buyCredit, type Party } from './sequences.ts';

const UNLIMITED = { RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '100000000' };
const LIMITED = { RATE_LIMIT_MAX: '5', TOP_UP_RATE_LIMIT_MAX: '3', EDGE_RATE_LIMIT_MAX: '20' };
const FUNDS = 1_000_000_000n;
/** With this much nobody can run out of credit, and with that little everybody does. */
const [MUCH, LITTLE] = [100_000, 50];

/** A gateway as its own process, with the settings of the commands beside it. */
export interface Fuzzed {
  readonly process: GatewayProcess;
  readonly env: Record<string, string>;
}

export interface World {
  readonly open: Fuzzed;
  /** The same with limits that a few requests reach, and a database of its own. */
  readonly limited: Fuzzed;
  readonly party: Party;
  readonly known: Known;
}

/** Two gateways with PostgreSQL, chain, facilitator, checkout and upstream. */
export async function openWorld(
  t: Test,
  chain: TestChain,
  observe: (call: Gateway['call']) => Gateway['call'],
): Promise<World> {
  // Each gateway sells through its own: their databases were made alike, and so take the other one's purchases for theirs.
  const [checkout, otherCheckout, facilitator, upstream] = await Promise.all([
    testCheckout(t),
    testCheckout(t),
    testFacilitator(t, chain),
    startStubUpstream(),
  ]);
  t.teardown(() => upstream.close());
  mineSteadily(t, chain, 250);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const start = async (limits: Record<string, string>, { env: processor }: TestCheckout): Promise<Fuzzed> => {
    const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-fuzz-'));
    t.teardown(() => rm(dataDir, { recursive: true, force: true }));
    const signingKeys = join(dataDir, 'keys.json');
    await writeFile(signingKeys, JSON.stringify(rotateKeys(undefined, new Date())), { mode: 0o600 });
    const env = {
      ...processor,
      ...limits,
      ...{ DATABASE_URL: (await testDatabase(t)).url, DATA_DIR: dataDir, SIGNING_KEYS_FILE: signingKeys },
      ...{ SPEECH_BASE_URL: upstream.url, X402_PAY_TO: payTo, X402_FACILITATOR_URL: facilitator.url },
      ...{ X402_RPC_URL: chain.rpcUrl, QUOTE_SECRET, FEEDBACK_SECRET: QUOTE_SECRET, JOB_SIGNING_SECRET: QUOTE_SECRET },
      ...{
        RECONCILE_INTERVAL_MS: '1000',
        LOG_LEVEL: 'warn',
        TOP_UP_MAX_CENTS: String(MUCH),
        FEEDBACK_MAX_PER_HOUR: '1000000',
      },
      NODE_OPTIONS: `--import=${new URL('collect-garbage.mjs', import.meta.url)}`,
    };
    return { process: await startGatewayProcess(t, env), env };
  };
  const [open, limited] = await Promise.all([start(UNLIMITED, checkout), start(LIMITED, otherCheckout)]);
  const call = observe((path, request) => send(open.process.url, path, request));
  const buyer = { call, checkout };
  const [rich, poor] = [await buyCredit(buyer, MUCH), await buyCredit(buyer, LITTLE)];
  const accepted = await later({ call }, rich);
  const done = await untilJob({ call }, accepted.json.jobId, 'completed');
  const accounts = [rich, rich, poor];
  return {
    ...{ open, limited },
    party: { ...buyer, chain, payTo, payer: await wallet(chain.client, FUNDS), account: rich },
    known: {
      'x-credit-account': accounts,
      ...{ accountId: accounts, account: accounts, jobId: [accepted.json.jobId] },
      sig: [new URL(done.json.result.audioUrl).searchParams.get('sig') ?? ''],
    },
  };
}
