import { join } from 'node:path';
import type { Hex, LocalAccount } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { dataDir, readSandboxFile, SANDBOX_FILE, type SandboxFile } from './sandbox-file.ts';

/** The running sandbox; the program ends when there is none. */
export async function runningSandbox(): Promise<SandboxFile> {
  const sandbox = await readSandboxFile(dataDir).catch((error) => {
    console.error(error.message);
    process.exit(1);
  });
  if (sandbox) return sandbox;
  console.error(`There is no ${join(dataDir, SANDBOX_FILE)}. Start the sandbox first: npm run sandbox`);
  process.exit(1);
}

/** What payment in USDC takes: the service, the chain, and who pays. */
export interface UsdcSandbox {
  readonly baseUrl: string;
  readonly chain: NonNullable<SandboxFile['chain']>;
  readonly payer: LocalAccount;
}

/** The parts for payment in USDC; undefined where no chain can run. */
export function usdcParts({ baseUrl, chain, wallet }: SandboxFile): UsdcSandbox | undefined {
  return chain && wallet ? { baseUrl, chain, payer: privateKeyToAccount(wallet.privateKey as Hex) } : undefined;
}
