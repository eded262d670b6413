import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { UsageError } from '../usage-error.ts';

/**
 * A secret, which is never an argument: from standard input for `-`, else from a file.
 * @param name of the option
 * @throws UsageError
 */
export async function readSecret(place: string, name: string): Promise<string> {
  const text = place === '-' ? await readAll(process.stdin) : await readFile(place, 'utf8').catch(() => undefined);
  if (text === undefined) {
    throw new UsageError(`${name} takes a file, or - for standard input; the file that it names can't be read.`);
  }
  return text.trim();
}
