import { randomUUID } from 'node:crypto';
import { isUuid } from '../../lib/uuid.ts';
import { endWith } from '../arguments.ts';

export const KEY_OPTION = { key: { type: 'string' } } as const;
export const KEY_USAGE = `
  --key UUID       of a former try that broke off: what was done then is not done again`;

/** The key of this change, a new one unless a former try is repeated; says what it is. */
export function readKey(given: string | undefined): string {
  if (given !== undefined && !isUuid(given)) endWith('--key takes the UUID that the former try has printed.');
  const key = given?.toLowerCase() ?? randomUUID();
  console.error(`If this breaks off, repeat it with --key ${key}`);
  return key;
}
