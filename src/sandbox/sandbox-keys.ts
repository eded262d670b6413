import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Hex } from 'viem';
import { generatePrivateKey } from 'viem/accounts';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';

/** Secrets that the sandbox makes for itself once, and keeps. */
export interface SandboxKeys {
  /** What the gateway and the local checkout share. */
  readonly stripeSecretKey: string;
  /** Signs the links to the audio of jobs. */
  readonly jobSigningSecret: string;
  /** Signs feedback challenges. */
  readonly feedbackSecret: string;
  /** Signs quotes. */
  readonly quoteSecret: string;
  /** Of the wallet that the gateway is paid to. */
  readonly payeeKey: Hex;
  /** Of the wallet that sends the facilitator's transactions. */
  readonly facilitatorKey: Hex;
  /** Of the demo wallet, which pays. */
  readonly walletKey: Hex;
}

const secret = () => randomBytes(32).toString('hex');

/** Reads DATA_DIR/sandbox-keys.json, and makes what it lacks. The file is readable by its owner only. */
export async function sandboxKeys(dataDir: string): Promise<SandboxKeys> {
  const file = join(dataDir, 'sandbox-keys.json');
  const made: SandboxKeys = {
    stripeSecretKey: `sk_test_${secret()}`,
    jobSigningSecret: secret(),
    feedbackSecret: secret(),
    quoteSecret: secret(),
    payeeKey: generatePrivateKey(),
    facilitatorKey: generatePrivateKey(),
    walletKey: generatePrivateKey(),
  };
  const kept = (await readUnsharedFile(file)) ?? '{}';
  const keys = { ...made, ...JSON.parse(kept) };
  await replaceOwnFile(file, `${JSON.stringify(keys, null, 2)}\n`);
  return keys;
}
