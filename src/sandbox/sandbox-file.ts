import { rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { SECRETS } from '../config/settings-reader.ts';
import { isLocalUrl } from '../lib/loopback.ts';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';

export const dataDirOf = (env: NodeJS.ProcessEnv): string => resolve(env.DATA_DIR ?? './data');

export const dataDir = dataDirOf(process.env);

export const SANDBOX_FILE = 'sandbox.json';
const FORMER_FILE = 'sandbox-former.json';

const localUrl = z.string().refine(isLocalUrl);
const hex = (bytes: number) => z.string().regex(new RegExp(`^0x[0-9a-f]{${2 * bytes}}$`, 'i'));

const Content = z.object({
  baseUrl: localUrl,
  creditAccount: z.guid(),
  checkoutUrl: localUrl,
  chain: z.object({ rpcUrl: localUrl, chainId: z.int(), asset: hex(20) }).nullable(),
  facilitatorUrl: localUrl.nullable(),
  wallet: z.object({ address: hex(20), privateKey: hex(32) }).nullable(),
  databaseUrl: z.string(),
});

export type SandboxFile = Readonly<z.output<typeof Content>>;

export class DamagedSandboxFileError extends Error {}

/** Undefined if there is none. @throws DamagedSandboxFileError, or ForeignFileError if others may have written it */
export async function readSandboxFile(dataDir: string, name = SANDBOX_FILE): Promise<SandboxFile | undefined> {
  const path = join(dataDir, name);
  const text = await readUnsharedFile(path);
  if (text === undefined) return undefined;
  const result = Content.safeParse(parse(text));
  if (result.success) return result.data;
  const member = result.error.issues[0]?.path[0];
  const fault = member === undefined ? 'it is not a JSON object' : `${String(member)} is not valid`;
  throw new DamagedSandboxFileError(
    `The sandbox file ${path} is damaged, so it is not used: ${fault}. Start the sandbox again, which writes it.`,
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Only its owner can read it, because it has a bearer id and a private key. */
export const writeSandboxFile = (dataDir: string, content: SandboxFile): Promise<void> =>
  writeJson(join(dataDir, SANDBOX_FILE), content);

const settingsFile = (dataDir: string): string => join(dataDir, 'settings.json');

type SandboxSettings = Readonly<Record<string, string>>;

/** Operators' commands use them if the environment names no database. */
export const writeSandboxSettings = (dataDir: string, settings: SandboxSettings): Promise<void> =>
  writeJson(settingsFile(dataDir), settings);

/** Undefined if no sandbox runs in this directory. @throws ForeignFileError if others may have written them */
export async function readSandboxSettings(dataDir: string): Promise<SandboxSettings | undefined> {
  const text = await readUnsharedFile(settingsFile(dataDir));
  return text === undefined ? undefined : JSON.parse(text);
}

export const removeSandboxSettings = (dataDir: string): Promise<void> => rm(settingsFile(dataDir), { force: true });

/** @throws ForeignFileError */
export async function readUndamagedSandbox(dataDir: string, name = SANDBOX_FILE): Promise<SandboxFile | undefined> {
  return readSandboxFile(dataDir, name).catch((error) => {
    if (!(error instanceof DamagedSandboxFileError)) throw error;
    return undefined;
  });
}

/**
 * Callers must not find a sandbox before it is ready.
 * @returns the last one that was ready, also after starts that failed @throws ForeignFileError
 */
export async function setSandboxAside(dataDir: string, current?: SandboxFile): Promise<SandboxFile | undefined> {
  if (current) await rename(join(dataDir, SANDBOX_FILE), join(dataDir, FORMER_FILE));
  else await rm(join(dataDir, SANDBOX_FILE), { force: true });
  return current ?? readUndamagedSandbox(dataDir, FORMER_FILE);
}

const writeJson = (path: string, content: unknown): Promise<void> =>
  replaceOwnFile(path, `${JSON.stringify(content, null, 2)}\n`);

/** Settings that lead to parts, money or secrets outside the sandbox. */
const OUTSIDE = [
  'AUDIO_STORE',
  'QUOTE_SECRET',
  'SIGNING_KEYS_FILE',
  'X402_ASSET',
  'X402_ASSET_NAME',
  'X402_ASSET_VERSION',
  'X402_FACILITATOR_AUTH',
  'X402_FACILITATOR_KEY_ID',
  'X402_FACILITATOR_KEY_SECRET',
  'X402_FACILITATOR_URL',
  'X402_NETWORK',
  'X402_PAY_TO',
  'X402_RPC_URL',
];

/** A sandbox overrides these settings, because its shell may be that of production (R63). */
export function sandboxSettings(
  shell: NodeJS.ProcessEnv,
  ownParts: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const { BASE_URL = '' } = shell;
  return {
    ...Object.fromEntries([...OUTSIDE, ...SECRETS.map((name) => `${name}_FILE`)].map((name) => [name, ''])),
    BASE_URL: isLocalUrl(BASE_URL) ? BASE_URL : '',
    ...ownParts,
  };
}
