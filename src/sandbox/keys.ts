import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Secrets that the sandbox makes for itself once, and keeps. */
export interface SandboxKeys {
  /** What the gateway and the local checkout share. */
  readonly stripeSecretKey: string;
  /** Signs the links to the audio of jobs. */
  readonly jobSigningSecret: string;
}

const secret = () => randomBytes(32).toString('hex');

/** Reads DATA_DIR/sandbox-keys.json, and makes what it lacks. The file is readable by its owner only. */
export async function sandboxKeys(dataDir: string): Promise<SandboxKeys> {
  const file = join(dataDir, 'sandbox-keys.json');
  const made: SandboxKeys = { stripeSecretKey: `sk_test_${secret()}`, jobSigningSecret: secret() };
  const kept = await readFile(file, 'utf8').catch(() => '{}');
  const keys = { ...made, ...JSON.parse(kept) };
  await writeFile(file, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600 });
  return keys;
}
