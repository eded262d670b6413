import type { BudgetLimits } from '../../budget/file-budget.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';
import { readUsd } from './usd.ts';

/** The names of options or variables, and what they say, in US dollars. */
export type GivenCaps = Readonly<Record<keyof BudgetLimits, readonly [name: string, text: string | undefined]>>;

/**
 * What may be spent; no limit where nothing was said.
 * @throws UsageError; a blank cap is one too, since it would be no cap
 */
export function readCaps(given: GivenCaps): BudgetLimits {
  const said = Object.entries(given).flatMap(([cap, [name, text]]) => {
    if (text === undefined) return [];
    if (text.trim() !== '') return [[cap, readUsd(text, name)]];
    throw new UsageError(`${name} is empty, so it would be no cap. Name US dollars, such as 0.01, or leave it out.`);
  });
  return Object.fromEntries(said);
}

/** What may be spent, for people. */
export function capsLine({ perCallMicroUsd, perDayMicroUsd, totalMicroUsd }: BudgetLimits): string {
  const caps = [
    [perCallMicroUsd, 'per call'],
    [perDayMicroUsd, 'per day'],
    [totalMicroUsd, 'in total'],
  ] as const;
  const set = caps.flatMap(([cap, of]) => (cap === undefined ? [] : [`${formatUsd(cap)} USD ${of}`]));
  return set.length > 0
    ? `Caps: ${set.join(', ')}.`
    : 'There is no cap: this can spend all there is. Set one with speechgate connect --max-per-day 1.';
}
