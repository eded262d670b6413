import { UsageError } from '../usage-error.ts';

const DOLLARS = /^\$?(\d{1,9})(?:\.(\d{1,6}))?$/;

/**
 * An amount of US dollars as people write it, such as 0.01 or $5, in micro-USD.
 * @param name of the option or variable that has it
 * @throws UsageError
 */
export function readUsd(text: string, name: string): bigint {
  const [, dollars, parts = ''] = DOLLARS.exec(text.trim()) ?? [];
  if (dollars !== undefined) return BigInt(dollars + parts.padEnd(6, '0'));
  throw new UsageError(`${name} takes US dollars with at most six decimals, such as 0.01; it is ${text}.`);
}
