import type { QueryCreator } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { anyOf } from '../db/expressions.ts';
import type { OperatorAction } from './operator-action.ts';

export const FLOWS = ['card', 'jobs', 'top-up', 'direct', 'prepaid', 'deposit'] as const;
export type PausableFlow = (typeof FLOWS)[number];

export interface Pause extends OperatorAction {
  readonly flow: string;
  readonly since: Date;
}

export const listPauses = (db: Database): Promise<Pause[]> =>
  db
    .selectFrom('paused_flow')
    .select(['flow', 'since', 'operator', 'reason'])
    .orderBy('since')
    .orderBy('flow')
    .execute();

export async function pausedFlows(db: Database): Promise<string[]> {
  const rows = await db.selectFrom('paused_flow').select('flow').orderBy('flow').execute();
  return rows.map(({ flow }) => flow);
}

export async function pauseFlows(
  db: Database,
  flows: readonly PausableFlow[],
  { operator, reason }: OperatorAction,
): Promise<string[]> {
  const pauses = flows.map((flow) => ({ flow, operator, reason }));
  const changes = db.with('changed', (qb) =>
    qb
      .insertInto('paused_flow')
      .values(pauses)
      .onConflict((conflict) => conflict.doNothing())
      .returning('flow'),
  );
  return record(changes, 'pause', { operator, reason });
}

export async function resumeFlows(
  db: Database,
  flows: readonly PausableFlow[],
  operatorAction: OperatorAction,
): Promise<string[]> {
  const changes = db.with('changed', (qb) =>
    qb.deleteFrom('paused_flow').where('flow', '=', anyOf(flows)).returning('flow'),
  );
  return record(changes, 'resume', operatorAction);
}

async function record(
  changes: QueryCreator<DB & { changed: { flow: string } }>,
  action: 'pause' | 'resume',
  { operator, reason }: OperatorAction,
): Promise<string[]> {
  const rows = await changes
    .insertInto('operator_action')
    .columns(['operator', 'action', 'subject', 'reason'])
    .expression(({ selectFrom, val }) =>
      selectFrom('changed')
        .select([val(operator).as('operator'), val(action).as('action')])
        .select(['flow as subject', val(reason).as('reason')]),
    )
    .returning('subject')
    .execute();
  return rows.map(({ subject }) => subject);
}
