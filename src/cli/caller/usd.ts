import { parseUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';

/**
 * An amount of US dollars as people write it, such as 0.01 or $5, in micro-USD.
 * @param name of the option or variable that has it
 * @throws UsageError
 */
export function readUsd(text: string, name: string): bigint {
  const microUsd = parseUsd(text.trim().replace(/^\$/, ''));
  if (microUsd !== undefined) return microUsd;
  throw new UsageError(`${name} takes US dollars with at most six decimals, such as 0.01; it is ${text}.`);
}
