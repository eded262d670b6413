import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Secrets that the sandbox makes for itself once, and keeps. */
export interface SandboxKeys {
  /** What the gateway and the local checkout share. */
  readonly stripeSecretKey: string;
}

/** Reads DATA_DIR/sandbox-keys.json, or makes it, readable by its owner only. */
export async function sandboxKeys(dataDir: string): Promise<SandboxKeys> {
  const file = join(dataDir, 'sandbox-keys.json');
  const made: SandboxKeys = { stripeSecretKey: `sk_test_${randomBytes(24).toString('hex')}` };
  try {
    return { ...made, ...JSON.parse(await readFile(file, 'utf8')) };
  } catch {
    await writeFile(file, `${JSON.stringify(made, null, 2)}\n`, { mode: 0o600 });
    return made;
  }
}
