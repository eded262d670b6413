import { readFile } from 'node:fs/promises';
import {
  fingerprint,
  parseSigningKeys,
  pinnedKeys,
  publicKeyJwk,
  readStoredKeys,
  rotateKeys,
  SigningKeysError,
} from '../../config/signing-keys.ts';
import { UsageError } from '../../lib/arguments.ts';
import { withFileLock } from '../../lib/file-lock.ts';
import { ForeignFileError, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';
import { defineCommand, ExitError, invalidSettings, printLines } from './command.ts';

const HOW_TO_COMPARE = `
Publish a fingerprint or a public key outside this service, for example on your website. A caller finds the key with
the same id in payload.trust.keys of GET /.well-known/x402-service-metadata, and computes the SHA-256 thumbprint (RFC 7638)
of its publicKeyJwk. The caller can trust the key if the thumbprint equals the fingerprint.`;

const USAGE = `speechgate admin keys [--show [--json]]
Creates the keys in SIGNING_KEYS_FILE, or rotates them.
  --show           only prints them
  --json           with --show: prints the public keys in the form that callers pass to --trust`;

export const keysCommand = defineCommand({
  usage: USAGE,
  options: { show: { type: 'boolean', default: false }, json: { type: 'boolean', default: false } },
  run: async ({ show, json }, _words, context) => {
    if (json && !show) throw new UsageError('--json needs --show.');
    const file = context.env.SIGNING_KEYS_FILE?.trim();
    if (!file) {
      throw invalidSettings('SIGNING_KEYS_FILE is not set. Set it to the path of the key file to create or rotate.');
    }
    try {
      const lines = show ? await shown(file, json) : await withFileLock(`${file}.lock`, () => rotate(file));
      printLines(context, lines);
      return 0;
    } catch (error) {
      throw new ExitError(messageOf(file, error));
    }
  },
});

async function shown(file: string, isJson: boolean): Promise<string[]> {
  // A mounted secret is a link, which `readOwnFile` refuses.
  const text = await readIfThere(file);
  if (text === undefined) throw new SigningKeysError('does not exist', 'Create it with: speechgate keys.');
  const now = new Date();
  if (isJson) return [JSON.stringify(pinnedKeys(parseSigningKeys(text, now)), null, 2)];
  return linesOf(`Keys of ${file}:`, text, now);
}

async function rotate(file: string): Promise<string[]> {
  const now = new Date();
  const text = await readOwnFile(file);
  const keys = rotateKeys(text === undefined ? undefined : readStoredKeys(text), now);
  const rotated = `${JSON.stringify(keys, null, 2)}\n`;
  parseSigningKeys(rotated, now);
  await replaceOwnFile(file, rotated);
  return linesOf(`${text === undefined ? 'Made' : 'Rotated'} ${file}. Restart the service to use it:`, rotated, now);
}

function messageOf(file: string, error: unknown): string {
  if (error instanceof ForeignFileError) return `${error.message} No key was changed.`;
  return error instanceof SigningKeysError
    ? `${file} ${error.message}. ${error.fix}`
    : `${file} can't be used: ${(error as Error).message.replace(/\.$/, '')}. No key was changed.`;
}

function readIfThere(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

async function linesOf(title: string, text: string, now: Date): Promise<string[]> {
  const lines = [title];
  for (const key of parseSigningKeys(text, now)) {
    const { keyId, status, validUntil } = key;
    lines.push(`  ${status.padEnd(8)}  ${keyId}${validUntil ? `  until ${validUntil.toISOString()}` : ''}`);
    lines.push(`    fingerprint  ${await fingerprint(key)}`);
    lines.push(`    public key   ${JSON.stringify(publicKeyJwk(key))}`);
  }
  return [...lines, HOW_TO_COMPARE];
}
