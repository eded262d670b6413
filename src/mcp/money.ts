import * as z from 'zod';
import type { FileBudget } from '../budget/file-budget.ts';
import { formatUsd } from '../lib/money.ts';

const USD = 'US dollars as a decimal, such as 0.000198';

export const usd = (what: string) => z.string().describe(`${what}, in ${USD}.`);

export const usdOrNull = (what: string) => z.string().nullable().describe(`${what}, in ${USD}.`);

export const formatted = (microUsd: bigint | null): string | null => (microUsd === null ? null : formatUsd(microUsd));

/** What the budget leaves for further calls; null where its sum is not limited. */
export const leftUsd = async (budget: FileBudget): Promise<string | null> =>
  formatted((await budget.read()).leftMicroUsd);
