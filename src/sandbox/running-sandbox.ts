import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { x402Client } from '@x402/fetch';
import type { Hex, LocalAccount } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { signPrepaid } from '../callers/client/prepaid.ts';
import type { SignedServiceMetadata } from '../contract/types.ts';
import { formatUsd } from '../lib/money.ts';
import { PREPAID } from '../payments/x402/prepaid-terms.ts';
import { dataDir, readSandboxFile, SANDBOX_FILE, type SandboxFile } from './sandbox-file.ts';

const MAX_AMOUNT_MICRO_USD = 1_000_000n;

export async function runningSandbox(): Promise<SandboxFile> {
  const sandbox = await readSandboxFile(dataDir).catch((error) => fail(error.message));
  if (!sandbox) return fail(`${join(dataDir, SANDBOX_FILE)} does not exist. Start the sandbox first: npm run sandbox`);
  const { baseUrl } = sandbox;
  await fetch(baseUrl).catch(() => fail(`No sandbox responds at ${baseUrl}. Start it first: npm run sandbox`));
  return sandbox;
}

export function fail(message: string): never {
  console.error(message);
  process.exit(1);
}

export const walletOf = ({ wallet }: SandboxFile): LocalAccount | undefined =>
  wallet ? privateKeyToAccount(wallet.privateKey as Hex) : undefined;

/** The official client, which by itself pays at most 1 USD, for payments up to the largest deposit. */
export function officialClient(wallet: LocalAccount, { chain }: Pick<SandboxFile, 'chain'>): x402Client {
  return new x402Client()
    .register(`eip155:${chain?.chainId ?? 0}`, new ExactEvmScheme(wallet))
    .setSpendControls({ maxAmountPerPayment: formatUsd(BigInt(PREPAID.maxDepositMicroUsd)) })
    .onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, `sandbox_${randomUUID()}`);
    });
}

export interface PrepaidCall {
  readonly method: string;
  readonly target: string;
  readonly body?: string | undefined;
}

/** Unverified, because the sandbox is local. With real money, verify the signature with a pinned key. */
export async function readMetadata(baseUrl: string): Promise<SignedServiceMetadata['payload']> {
  const response = await fetch(`${baseUrl}/.well-known/x402-service-metadata`);
  return ((await response.json()) as SignedServiceMetadata).payload;
}

export async function prepaidHeaders(
  wallet: LocalAccount,
  metadata: SignedServiceMetadata['payload'],
  { method, target, body = '' }: PrepaidCall,
): Promise<Readonly<Record<string, string>>> {
  const call = { method: method as 'GET' | 'POST', target, body, maxMicroUsd: MAX_AMOUNT_MICRO_USD };
  return (await signPrepaid(wallet, metadata, call)).headers;
}
