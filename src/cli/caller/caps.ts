import type { BudgetLimits } from '../../budget/file-budget.ts';
import { readUsd } from './usd.ts';

/** The names of options or variables, and what they say, in US dollars. */
export type GivenCaps = Readonly<Record<keyof BudgetLimits, readonly [name: string, text: string | undefined]>>;

/**
 * What may be spent; no limit where nothing was said.
 * @throws UsageError
 */
export function readCaps(given: GivenCaps): BudgetLimits {
  const said = Object.entries(given).flatMap(([cap, [name, text]]) => (text ? [[cap, readUsd(text, name)]] : []));
  return Object.fromEntries(said);
}
