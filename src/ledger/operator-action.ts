import type { Database } from '../db/database.ts';

export interface OperatorAction {
  readonly operator: string;
  readonly reason: string;
}

export const MAX_NAME = 100;
export const MAX_REASON = 500;

export interface Action extends OperatorAction {
  readonly action: string;
  readonly subject: string;
  readonly key?: string;
  readonly transferId?: string;
  readonly detail?: Readonly<Record<string, string | number>>;
}

/** Records an operator's change within its transaction. @throws if the key was used before */
export async function recordAction(trx: Database, entry: Action): Promise<void> {
  const { operator, action, subject, reason, key = null, transferId = null, detail } = entry;
  const written = detail ? JSON.stringify(detail) : null;
  await trx
    .insertInto('operator_action')
    .values({ operator, action, subject, reason, key, transfer_id: transferId, detail: written })
    .execute();
}

export async function isRecorded(
  db: Database,
  { action, subject, detail }: Required<Pick<Action, 'action' | 'subject' | 'detail'>>,
): Promise<boolean> {
  const actions = db.selectFrom('operator_action').where('action', '=', action).where('subject', '=', subject);
  return (await actions.where('detail', '=', JSON.stringify(detail)).limit(1).executeTakeFirst()) !== undefined;
}
