import { rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { isLocalUrl } from '../lib/loopback.ts';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import { isUuid } from '../lib/uuid.ts';

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

/** A sandbox.json is not what a sandbox writes. */
export class DamagedSandboxFileError extends Error {}

/**
 * What the last sandbox on this directory wrote; undefined when there was none.
 * @throws ForeignFileError where another user may have written it, and DamagedSandboxFileError
 */
export async function readSandboxFile(dataDir: string): Promise<SandboxFile | undefined> {
  const path = join(dataDir, SANDBOX_FILE);
  const text = await readUnsharedFile(path);
  if (text === undefined) return undefined;
  const content = parse(text);
  const faulty = Object.entries(MEMBERS).find(([name, isValid]) => !isValid(content?.[name]));
  if (content && !faulty) return content as unknown as SandboxFile;
  const fault = faulty && content ? `${faulty[0]} is wrong` : 'it is no JSON object';
  throw new DamagedSandboxFileError(
    `${path} is not what a sandbox writes: ${fault}. Nothing of it is used. Start the sandbox again, which writes it.`,
  );
}

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null;
const isLocal = (value: unknown): boolean => typeof value === 'string' && isLocalUrl(value);
const isHex = (value: unknown, bytes: number): boolean =>
  typeof value === 'string' && new RegExp(`^0x[0-9a-f]{${2 * bytes}}$`, 'i').test(value);

const MEMBERS: Readonly<Record<keyof SandboxFile, (value: unknown) => boolean>> = {
  baseUrl: isLocal,
  creditAccount: (value) => typeof value === 'string' && isUuid(value),
  checkoutUrl: isLocal,
  chain: (value) =>
    value === null ||
    (isObject(value) && isLocal(value.rpcUrl) && Number.isSafeInteger(value.chainId) && isHex(value.asset, 20)),
  facilitatorUrl: (value) => value === null || isLocal(value),
  wallet: (value) => value === null || (isObject(value) && isHex(value.address, 20) && isHex(value.privateKey, 32)),
  databaseUrl: (value) => typeof value === 'string',
};

function parse(text: string): Json | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
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
