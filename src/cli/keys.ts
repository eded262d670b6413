/**
 * `npm run keys`: makes SIGNING_KEYS_FILE when it does not exist, and rotates it when it does. Running processes keep
 * the keys that they have read; restart them after a rotation.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
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
  // A new file with the mode from the start, and then its name: nobody ever reads half a key set.
  const draft = `${file}.${process.pid}.new`;
  await writeFile(draft, rotated, { mode: 0o600, flag: 'wx', flush: true });
  await rename(draft, file);
  console.log(`${text === undefined ? 'Made' : 'Rotated'} ${file}:`);
  for (const { kid, status, validUntil } of keys.keys) {
    console.log(`  ${status.padEnd(8)}  ${kid}${validUntil ? `  until ${validUntil}` : ''}`);
  }
} catch (error) {
  console.error(error instanceof SigningKeysError ? `${file} ${error.message}.` : `${file}: ${error}`);
  process.exitCode = 1;
}
