/**
 * `npm run keys`: makes SIGNING_KEYS_FILE when it does not exist, and rotates it when it does. Running processes keep
 * the keys that they have read; restart them after a rotation.
 */
import { readFile } from 'node:fs/promises';
import { replaceOwnFile } from '../private-files.ts';
import { parseSigningKeys, readStoredKeys, rotateKeys, SigningKeysError } from '../x402/signing-keys.ts';

const file = process.env.SIGNING_KEYS_FILE?.trim();
if (!file) {
  console.error('SIGNING_KEYS_FILE is not set. Set it to the path of the key file to make or rotate.');
  process.exit(78);
}

try {
  const now = new Date();
  const text = await readFile(file, 'utf8').catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  const keys = rotateKeys(text === undefined ? undefined : readStoredKeys(text), now);
  const rotated = `${JSON.stringify(keys, null, 2)}\n`;
  parseSigningKeys(rotated, now);
  await replaceOwnFile(file, rotated);
  console.log(`${text === undefined ? 'Made' : 'Rotated'} ${file}:`);
  for (const { kid, status, validUntil } of keys.keys) {
    console.log(`  ${status.padEnd(8)}  ${kid}${validUntil ? `  until ${validUntil}` : ''}`);
  }
} catch (error) {
  console.error(error instanceof SigningKeysError ? `${file} ${error.message}.` : `${file}: ${error}`);
  process.exitCode = 1;
}
