import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { type Deed, insertAction } from './operator-action.ts';

/** The ways to take money that can be paused, each by itself. */
export const FLOWS = ['card', 'jobs', 'top-up', 'direct', 'prepaid', 'deposit'] as const;
export type PausableFlow = (typeof FLOWS)[number];

export interface Pause extends Deed {
  readonly flow: string;
  readonly since: Date;
}

/** What is paused, in the order of time. */
export async function listPauses(db: Database): Promise<Pause[]> {
  const { rows } = await statement<Pause>`
    select flow, since, operator, reason from paused_flow order by since, flow`.execute(db);
  return rows;
}

/** The names of what is paused. */
export async function pausedFlows(db: Database): Promise<string[]> {
  const { rows } = await statement<{ flow: string }>`select flow from paused_flow order by flow`.execute(db);
  return rows.map(({ flow }) => flow);
}

/** Pauses what is not paused yet, and writes that down; tells which that was. */
export async function pauseFlows(db: Database, flows: readonly PausableFlow[], deed: Deed): Promise<string[]> {
  const { rows } = await statement<{ subject: string }>`
    with paused as (
      insert into paused_flow (flow, operator, reason)
      select unnest(${flows}::text[]), ${deed.operator}, ${deed.reason} on conflict do nothing returning flow
    )
    ${insertAction('pause', deed, fragment`flow`, fragment`paused`)} returning subject`.execute(db);
  return rows.map(({ subject }) => subject);
}

/** Opens what is paused again, and writes that down; tells which that was. */
export async function resumeFlows(db: Database, flows: readonly PausableFlow[], deed: Deed): Promise<string[]> {
  const { rows } = await statement<{ subject: string }>`
    with resumed as (delete from paused_flow where flow = any(${flows}::text[]) returning flow)
    ${insertAction('resume', deed, fragment`flow`, fragment`resumed`)} returning subject`.execute(db);
  return rows.map(({ subject }) => subject);
}
