import { formatUsd } from '../../lib/money.ts';
import { stillCharged } from '../client/money-text.ts';
import { defineCommand } from './command.ts';
import { withCaller } from './open-caller.ts';
import { flowWord } from './read-values.ts';

export const budgetCommand = defineCommand({
  usage: `speechgate budget
Shows what say, bridge and mcp spent on this machine, what is reserved for purchases that may still be charged, and what
is left.
Set the caps with speechgate connect --max-per-call, --max-per-day and --max-total.
`,
  example: 'speechgate budget',
  run: async (_values, { output, host }) => {
    await withCaller(host, {}, async ({ budget, settings: { flow, caps } }) => {
      const state = await budget.read(flow);
      const { spentTodayMicroUsd, spentMicroUsd, reservedMicroUsd, reservedUntil, leftMicroUsd } = state;
      const { perCallMicroUsd, perDayMicroUsd, totalMicroUsd } = caps;
      const usd = (amount: bigint) => `${formatUsd(amount)} USD`;
      const of = (cap: bigint | undefined) => (cap === undefined ? '' : ` of ${usd(cap)}`);
      output.done({ ...state, caps }, [
        `spent today     ${usd(spentTodayMicroUsd)}${of(perDayMicroUsd)}`,
        `spent in total  ${usd(spentMicroUsd)}${of(totalMicroUsd)}`,
        `reserved        ${usd(reservedMicroUsd)}${reservedMicroUsd > 0n ? ` (${stillCharged(reservedUntil)}; see speechgate resume)` : ''}`,
        `unconfirmed     ${usd(state.unconfirmedTodayMicroUsd)}${of(perDayMicroUsd)} today, ${usd(state.unconfirmedMicroUsd)}${of(totalMicroUsd)} in total (signed; not charged according to the service)`,
        `left            ${leftMicroUsd === null ? 'no limit' : `${usd(leftMicroUsd)} to pay by ${flowWord(flow)}`}`,
        `per call        ${perCallMicroUsd === undefined ? 'no limit' : `at most ${usd(perCallMicroUsd)}`}`,
      ]);
    });
  },
});
