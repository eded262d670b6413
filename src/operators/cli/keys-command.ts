import { readFile } from 'node:fs/promises';
import {
  fingerprint,
  parseSigningKeys,
  publicKeyJwk,
  readStoredKeys,
  rotateKeys,
  SigningKeysError,
} from '../../config/signing-keys.ts';
import { readArguments } from '../../lib/arguments.ts';
import { withFileLock } from '../../lib/file-lock.ts';
import { ForeignFileError, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';

const HOW_TO_COMPARE = `
Give callers a fingerprint, or a public key, by another channel than this service. In GET /.well-known/x402-service-metadata a
caller finds the entry of payload.trust.keys with that id, and computes the SHA-256 thumbprint of its publicKeyJwk (RFC 7638).
The caller can trust the key if the thumbprint equals the fingerprint.`;

const USAGE = `speechgate keys [--show]
Creates the keys in SIGNING_KEYS_FILE, or rotates them.
  --show           only prints them`;

const { values } = readArguments({ usage: USAGE, options: { show: { type: 'boolean', default: false } } });
const file = process.env.SIGNING_KEYS_FILE?.trim();
if (!file) {
  console.error('SIGNING_KEYS_FILE is not set. Set it to the path of the key file to make or rotate.');
  process.exit(78);
}

try {
  if (values.show) {
    // A mounted secret is a link, which `readOwnFile` refuses.
    const text = await readIfThere(file);
    if (text === undefined) throw new SigningKeysError('does not exist');
    await print('Keys of', text, new Date());
  } else {
    await withFileLock(`${file}.lock`, () => rotate(file));
  }
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}

async function rotate(path: string): Promise<void> {
  const now = new Date();
  const text = await readOwnFile(path);
  const keys = rotateKeys(text === undefined ? undefined : readStoredKeys(text), now);
  const rotated = `${JSON.stringify(keys, null, 2)}\n`;
  parseSigningKeys(rotated, now);
  await replaceOwnFile(path, rotated);
  await print(text === undefined ? 'Made' : 'Rotated', rotated, now);
}

function messageOf(error: unknown): string {
  if (error instanceof ForeignFileError) return `${error.message} No key was changed.`;
  return error instanceof SigningKeysError ? `${file} ${error.message}.` : `${file}: ${error}`;
}

function readIfThere(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

async function print(what: string, text: string, now: Date): Promise<void> {
  console.log(`${what} ${file}:`);
  for (const key of parseSigningKeys(text, now)) {
    const { keyId, status, validUntil } = key;
    console.log(`  ${status.padEnd(8)}  ${keyId}${validUntil ? `  until ${validUntil.toISOString()}` : ''}`);
    console.log(`    fingerprint  ${await fingerprint(key)}`);
    console.log(`    public key   ${JSON.stringify(publicKeyJwk(key))}`);
  }
  console.log(HOW_TO_COMPARE);
}
