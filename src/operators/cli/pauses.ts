import type { Database } from '../../db/database.ts';
import type { OperatorAction } from '../../ledger/operator-action.ts';
import { FLOWS, listPauses, type PausableFlow, pauseFlows, resumeFlows } from '../../ledger/pauses.ts';
import { endWith, JSON_OPTION, readArguments } from '../../lib/arguments.ts';
import { printableJson, printTable } from '../../lib/printable.ts';
import { commandSettings, withDatabase } from './command-settings.ts';
import { ACTION_OPTIONS, ACTION_USAGE, confirmed, readOperatorAction } from './operator-options.ts';

export const pause = () =>
  changeFlows('pause', 'paused', pauseFlows, (flows) => {
    return `This pauses ${flows}. New requests get 503 until you resume them; running requests finish.`;
  });

export const resume = () => changeFlows('resume', 'open', resumeFlows, (flows) => `This resumes ${flows}.`);

/** @param state of a flow after the change @param change returns the changed flows */
async function changeFlows(
  command: string,
  state: string,
  change: (db: Database, flows: readonly PausableFlow[], operatorAction: OperatorAction) => Promise<string[]>,
  describe: (flows: string) => string,
): Promise<void> {
  const usage = `speechgate ${command} FLOW… --reason TEXT
  FLOW             ${FLOWS.join(', ')}; or all${ACTION_USAGE}
  --json           prints the changes as JSON`;
  const options = { ...ACTION_OPTIONS, ...JSON_OPTION };
  const { values, words } = readArguments({ usage, options, words: ['FLOW'], maxWords: FLOWS.length });
  const unknown = words.find((name) => name !== 'all' && !FLOWS.some((flow) => flow === name));
  if (unknown !== undefined) endWith(`There is no flow ${unknown}. There are: ${FLOWS.join(', ')}; or all.`);
  const flows = words.includes('all') ? FLOWS : FLOWS.filter((flow) => words.includes(flow));
  const operatorAction = readOperatorAction(values);
  const settings = await commandSettings();
  if (!(await confirmed(describe(flows.join(', ')), values.yes))) return;
  await withDatabase({ settings, subject: 'The pauses', use: 'changed' }, async (db) => {
    const changed = await change(db, flows, operatorAction);
    const unchanged = flows.filter((flow) => !changed.includes(flow));
    if (values.json) return console.log(JSON.stringify({ changed, unchanged }));
    for (const flow of changed) console.log(`${flow} is ${state}`);
    for (const flow of unchanged) console.log(`${flow} was already ${state}`);
  });
}

export async function paused(): Promise<void> {
  const usage = 'speechgate paused\n  --json           prints a JSON array';
  const { values } = readArguments({ usage, options: JSON_OPTION });
  await withDatabase({ subject: 'The pauses' }, async (db) => {
    const pauses = await listPauses(db);
    if (values.json) return console.log(printableJson(pauses));
    if (pauses.length === 0) return console.log('Nothing is paused.');
    printTable(pauses);
  });
}
