import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Secrets that the sandbox makes for itself once, and keeps. */
export interface SandboxKeys {
  /** What the gateway and the local checkout share. */
  readonly stripeSecretKey: string;
  readonly feedbackSecret: string;
}

/** Reads DATA_DIR/sandbox-keys.json, which is readable by its owner only, and adds to it what is missing. */
export async function sandboxKeys(dataDir: string): Promise<SandboxKeys> {
  const file = join(dataDir, 'sandbox-keys.json');
  const kept = await readKeys(file);
  const keys: SandboxKeys = {
    stripeSecretKey: `sk_test_${randomBytes(24).toString('hex')}`,
    feedbackSecret: randomBytes(32).toString('hex'),
    ...kept,
  };
  if (Object.keys(keys).some((name) => !(name in kept))) {
    await writeFile(file, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600 });
  }
  return keys;
}

async function readKeys(file: string): Promise<Partial<SandboxKeys>> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch {
    return {};
  }
}
