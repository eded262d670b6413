import { readFile, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { replaceOwnFile } from '../lib/private-files.ts';

/** Where the sandbox of this shell keeps its files. */
export const dataDir = resolve(process.env.DATA_DIR ?? './data');

export const SANDBOX_FILE = 'sandbox.json';

/** What a program needs to use a running sandbox. A part that can't run here is null. */
export interface SandboxFile {
  readonly baseUrl: string;
  readonly creditAccount: string;
  readonly checkoutUrl: string;
  readonly chain: { readonly rpcUrl: string; readonly chainId: number; readonly asset: string } | null;
  readonly facilitatorUrl: string | null;
  readonly wallet: { readonly address: string; readonly privateKey: string } | null;
  /** For programs that look into the database; it holds a password. */
  readonly databaseUrl: string;
}

/** What the last sandbox on this directory wrote; undefined when there was none, or its file is damaged. */
export async function readSandboxFile(dataDir: string): Promise<SandboxFile | undefined> {
  try {
    return JSON.parse(await readFile(join(dataDir, SANDBOX_FILE), 'utf8'));
  } catch {
    return undefined;
  }
}

/** Writes the file at once and whole, readable by its owner only: it holds a bearer id and a private key. */
export async function writeSandboxFile(dataDir: string, content: SandboxFile): Promise<void> {
  await replaceOwnFile(join(dataDir, SANDBOX_FILE), `${JSON.stringify(content, null, 2)}\n`);
}

/** Before a sandbox is ready nobody shall take it for that. */
export async function removeSandboxFile(dataDir: string): Promise<void> {
  await rm(join(dataDir, SANDBOX_FILE), { force: true });
}
