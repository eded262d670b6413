import type { Database } from '../../db/database.ts';
import type { OperatorAction } from '../../ledger/operator-action.ts';
import { FLOWS, listPauses, type PausableFlow, pauseFlows, resumeFlows } from '../../ledger/pauses.ts';
import { JSON_OPTION, UsageError } from '../../lib/arguments.ts';
import { printableJson, tableLines } from '../../lib/printable.ts';
import { commandSettings, defineCommand, printLines, withDatabase } from './command.ts';
import { ACTION_OPTIONS, ACTION_USAGE, confirm, readOperatorAction } from './operator-options.ts';

export const pauseCommand = changeCommand('pause', 'paused', pauseFlows, (flows) => {
  return `This will pause ${flows}. New requests get 503 until you resume these flows; running requests finish.`;
});

export const resumeCommand = changeCommand(
  'resume',
  'open',
  resumeFlows,
  (flows) => `This will resume ${flows}. New requests are accepted again.`,
);

/** @param state of a flow after the change @param change returns the changed flows */
function changeCommand(
  command: string,
  state: string,
  change: (db: Database, flows: readonly PausableFlow[], operatorAction: OperatorAction) => Promise<string[]>,
  describe: (flows: string) => string,
) {
  return defineCommand({
    usage: `speechgate admin ${command} FLOW… --reason TEXT
  FLOW             ${FLOWS.join(', ')}; or all. Speech is paid by card credit (card), or in
                   USDC at once (direct) or from a balance (prepaid)${ACTION_USAGE}
  --json           prints the changes as JSON`,
    options: { ...ACTION_OPTIONS, ...JSON_OPTION },
    words: ['FLOW'],
    maxWords: FLOWS.length,
    run: async (values, words, context) => {
      const unknown = words.find((name) => name !== 'all' && !FLOWS.some((flow) => flow === name));
      if (unknown !== undefined)
        throw new UsageError(`FLOW ${unknown} does not exist. Use ${FLOWS.join(', ')}, or all. Nothing was changed.`);
      const flows = words.includes('all') ? FLOWS : FLOWS.filter((flow) => words.includes(flow));
      const operatorAction = readOperatorAction(values, context.env);
      const settings = await commandSettings(context);
      if (!values.yes) await confirm(context, describe(flows.join(', ')), false);
      return withDatabase(context, { settings, subject: 'The pauses', use: 'changed' }, async (db) => {
        const changed = await change(db, flows, operatorAction);
        const unchanged = flows.filter((flow) => !changed.includes(flow));
        printLines(
          context,
          values.json
            ? [JSON.stringify({ changed, unchanged })]
            : [
                ...changed.map((flow) => `${flow} is ${state}`),
                ...unchanged.map((flow) => `${flow} was already ${state}`),
              ],
        );
        return 0;
      });
    },
  });
}

export const pausedCommand = defineCommand({
  usage:
    'speechgate admin paused\nLists the paused flows: since when, by whom and why.\n  --json           prints a JSON array',
  options: JSON_OPTION,
  run: async ({ json }, _words, context) =>
    withDatabase(context, { subject: 'The pauses' }, async (db) => {
      const pauses = await listPauses(db);
      const lines = pauses.length === 0 ? ['Nothing is paused.'] : tableLines(pauses);
      printLines(context, json ? [printableJson(pauses)] : lines);
      return 0;
    }),
});
