import { join } from 'node:path';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { listening, pinsOf } from './client.ts';
import type { GatewayOptions } from './gateway.ts';
import { fundedWallet, type PrepaidGateway, startPrepaidGateway } from './prepaid.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** Who pays a gateway from a prepaid balance, with a settings folder of their own. @param microUsd the balance */
export async function startPrepaidCaller(t: Test, microUsd: bigint, options: GatewayOptions = {}) {
  return prepaidCallerOf(t, await startPrepaidGateway(t, await listening(), options), microUsd);
}

/** The same, of a gateway that runs already. */
export async function prepaidCallerOf(t: Test, gateway: PrepaidGateway, microUsd: bigint) {
  const key = generatePrivateKey();
  const payer = await fundedWallet(gateway, microUsd, privateKeyToAccount(key));
  const folder = await temporaryFolder(t);
  return {
    ...payer,
    gateway,
    /** What the commands of callers read; the caps are to be added. */
    env: {
      SPEECHGATE_CONFIG_DIR: folder,
      SPEECHGATE_URL: gateway.url,
      SPEECHGATE_PAY: 'prepaid',
      SPEECHGATE_WALLET_KEY: key,
      SPEECHGATE_TRUST: JSON.stringify(pinsOf(gateway)),
    },
    /** Of the budget that these commands share. */
    budgetPath: join(folder, 'budget.jsonl'),
  };
}
