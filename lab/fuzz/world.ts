import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../src/config/signing-keys.ts';
import { type TestChain, wallet } from '../../test/support/chain.ts';
import { type TestCheckout, testCheckout } from '../../test/support/checkout.ts';
import { testDatabase } from '../../test/support/database.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import { type Gateway, send } from '../../test/support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { startStubUpstream } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { QUOTE_SECRET } from '../../test/support/x402.ts';
import type { Known } from './contract-requests.ts';
import { buyCredit, type Party } from './sequences.ts';

const UNLIMITED = { RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '100000000' };
const LIMITED = { RATE_LIMIT_MAX: '5', TOP_UP_RATE_LIMIT_MAX: '3', EDGE_RATE_LIMIT_MAX: '20' };
const FUNDS = 1_000_000_000n;
/** Credit in cents: enough for the whole run, and too little for it. */
const [MUCH, LITTLE] = [100_000, 50];

/** A gateway in its own process, and the settings for commands beside it. */
export interface Fuzzed {
  readonly process: GatewayProcess;
  readonly env: Record<string, string>;
}

export interface World {
  readonly open: Fuzzed;
  /** The same with low limits and its own database. */
  readonly limited: Fuzzed;
  readonly party: Party;
  readonly known: Known;
}

export async function openWorld(
  t: Test,
  chain: TestChain,
  observe: (call: Gateway['call']) => Gateway['call'],
): Promise<World> {
  // Each gateway has its own checkout: the databases are copies, so each would treat the other's purchases as its own.
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
    const dataDir = await temporaryFolder(t);
    const signingKeys = join(dataDir, 'keys.json');
    await writeFile(signingKeys, JSON.stringify(rotateKeys(undefined, new Date())), { mode: 0o600 });
    const env = {
      ...processor,
      ...limits,
      ...{ DATABASE_URL: (await testDatabase(t)).url, DATA_DIR: dataDir, SIGNING_KEYS_FILE: signingKeys },
      ...{ SPEECH_BASE_URL: upstream.url, X402_PAY_TO: payTo, X402_FACILITATOR_URL: facilitator.url },
      ...{
        X402_RPC_URL: chain.rpcUrl,
        QUOTE_SECRET,
        FEEDBACK_SECRET: 'f'.repeat(32),
        JOB_SIGNING_SECRET: 'j'.repeat(32),
      },
      ...{
        RECONCILE_INTERVAL_MS: '1000',
        LOG_LEVEL: 'warn',
        TOP_UP_MAX_CENTS: String(MUCH),
        FEEDBACK_MAX_PER_HOUR: '1000000',
      },
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
