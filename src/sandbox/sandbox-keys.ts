import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { generatePrivateKey } from 'viem/accounts';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';

const secret = () => randomBytes(32).toString('hex');

const newKeys = () => ({
  stripeSecretKey: `sk_test_${secret()}`,
  jobSigningSecret: secret(),
  feedbackSecret: secret(),
  quoteSecret: secret(),
  payeeKey: generatePrivateKey(),
  facilitatorKey: generatePrivateKey(),
  walletKey: generatePrivateKey(),
});

export type SandboxKeys = Readonly<ReturnType<typeof newKeys>>;

/** Reads DATA_DIR/sandbox-keys.json and adds missing keys. Only its owner can read the file. */
export async function sandboxKeys(dataDir: string): Promise<SandboxKeys> {
  const file = join(dataDir, 'sandbox-keys.json');
  const keys = { ...newKeys(), ...JSON.parse((await readUnsharedFile(file)) ?? '{}') };
  await replaceOwnFile(file, `${JSON.stringify(keys, null, 2)}\n`);
  return keys;
}
