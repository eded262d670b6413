import type { Database } from '../db/database.ts';
import type { Deed } from '../operators/operator-action.ts';
import { FLOWS, type PausableFlow } from '../operators/pauses.ts';
import { endWith, readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { confirmed, DEED_OPTIONS, DEED_USAGE, readDeed } from './deed.ts';
import { look } from './look.ts';

export interface FlowChange {
  readonly command: 'pause' | 'resume';
  /** What it comes to, as a sentence about flows. */
  readonly tell: (flows: string) => string;
  /** What a flow is by then. */
  readonly state: string;
  /** Makes the change; tells which flows it has changed. */
  readonly change: (db: Database, flows: readonly PausableFlow[], deed: Deed) => Promise<string[]>;
}

/** Runs `speechgate pause` or `speechgate resume`. */
export async function changeFlows({ command, tell, state, change }: FlowChange): Promise<void> {
  const usage = `speechgate ${command} FLOW… --reason TEXT
  FLOW             ${FLOWS.join(', ')}; or all${DEED_USAGE}
  --json           print what was changed as JSON`;
  const { values, positionals } = readArguments(
    { allowPositionals: true, options: { ...DEED_OPTIONS, json: { type: 'boolean', default: false } } },
    usage,
  );
  const flows = positionals.includes('all') ? FLOWS : FLOWS.filter((flow) => positionals.includes(flow));
  const unknown = positionals.find((name) => name !== 'all' && !flows.some((flow) => flow === name));
  if (unknown !== undefined) endWith(`There is no flow ${unknown}.\n${usage}`);
  if (flows.length === 0) endWith(usage);
  const deed = readDeed(values);
  const settings = await commandSettings();
  if (!(await confirmed(tell(flows.join(', ')), values.yes))) return;
  await look({ settings, subject: 'What is paused', use: 'changed' }, async (db) => {
    const changed = await change(db, flows, deed);
    const unchanged = flows.filter((flow) => !changed.includes(flow));
    if (values.json) return console.log(JSON.stringify({ changed, unchanged }));
    for (const flow of changed) console.log(`${flow} is ${state}`);
    for (const flow of unchanged) console.log(`${flow} was ${state} before`);
  });
}
