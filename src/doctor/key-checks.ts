import { stat } from 'node:fs/promises';
import { currentKey } from '../x402/signing-keys.ts';
import { type Area, type Finding, fault, off, ok, warning } from './check.ts';
import type { Patient } from './patient.ts';

const DAY_MS = 86_400_000;
const WARNING_DAYS = 30;
const FAULT_DAYS = 7;
const OTHERS = 0o077;

/** The keys of the signed metadata: how long the one lasts that signs, and who else can read the file. */
export function keyChecks({ config, now, keysFile }: Pick<Patient, 'config' | 'now' | 'keysFile'>): Area {
  const { signingKeys } = config;
  if (!signingKeys || keysFile === undefined) {
    return off(['signing-keys', 'signing-keys-file'], 'SIGNING_KEYS_FILE is unset: metadata answers 503.');
  }
  const { keyId, validUntil } = currentKey(signingKeys);
  const hasNext = signingKeys.some(({ status }) => status === 'next');
  return {
    checks: [
      { name: 'signing-keys', run: async () => judgeTime(keyId, validUntil, now(), hasNext) },
      { name: 'signing-keys-file', run: () => isPrivate(keysFile) },
    ],
  };
}

function judgeTime(keyId: string, validUntil: Date | undefined, now: number, hasNext: boolean): Finding {
  const fix = 'Run npm run keys, give the file to all replicas, and restart them.';
  const daysLeft = validUntil ? Math.floor((validUntil.getTime() - now) / DAY_MS) : Number.POSITIVE_INFINITY;
  if (daysLeft < FAULT_DAYS) return fault(`The key ${keyId} ends in ${daysLeft} days.`, fix);
  if (daysLeft < WARNING_DAYS) return warning(`The key ${keyId} ends in ${daysLeft} days.`, fix);
  const lasts = validUntil ? `signs for ${daysLeft} more days` : 'signs until it is rotated';
  if (hasNext) return ok(`The key ${keyId} ${lasts}.`);
  return warning(
    `The key ${keyId} ${lasts}, and no next one is announced: callers can't get to know it before it signs.`,
    'Add a key with the status next to SIGNING_KEYS_FILE (npm run keys makes one with each rotation).',
  );
}

async function isPrivate(file: string): Promise<Finding> {
  if (process.platform === 'win32') return ok('This system has no file modes.');
  const { mode } = await stat(file);
  const told = `The file has mode ${(mode & 0o777).toString(8).padStart(4, '0')}`;
  if ((mode & OTHERS) === 0) return ok(`${told}.`);
  return fault(`${told}: other users of this machine may read or replace the keys.`, 'chmod 600 SIGNING_KEYS_FILE.');
}
