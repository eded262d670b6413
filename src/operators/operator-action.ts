import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';

/** Who changes something, and why; both are kept. */
export interface Deed {
  /** As the operator is known to the others, at most MAX_NAME characters. */
  readonly operator: string;
  /** At most MAX_REASON characters. */
  readonly reason: string;
}

/** Longest name of an operator, as the database takes it. */
export const MAX_NAME = 100;
/** Longest reason, as the database takes it. */
export const MAX_REASON = 500;

/** What an operator did. */
export interface Action extends Deed {
  /** Such as `adjust`. */
  readonly action: string;
  /** What it was done to: an account, a purchase. */
  readonly subject: string;
  /** A UUID that this change alone has, where a repetition must change nothing. */
  readonly key?: string;
  /** The entry that it made in the books. */
  readonly transferId?: bigint;
  readonly detail?: Readonly<Record<string, string | number>>;
}

/**
 * Writes what an operator did into the book of that, for the statement that does it: an entry for each row.
 * @param action such as `pause`
 * @param subject what to select of the rows: what it was done to
 * @param rows what stands behind `from`
 */
export const insertAction = (action: string, { operator, reason }: Deed, subject: Fragment, rows: Fragment): Fragment =>
  fragment`
  insert into operator_action (operator, action, subject, reason)
  select ${operator}::text, ${action}::text, ${subject}, ${reason}::text from ${rows}`;

/** Likewise, in the transaction of what is done. @throws when the key has been used before */
export async function recordAction(trx: Database, { key, transferId, detail, ...action }: Action): Promise<void> {
  await trx
    .insertInto('operator_action')
    .values({
      ...{ operator: action.operator, action: action.action, subject: action.subject, reason: action.reason },
      ...{ key: key ?? null, transfer_id: transferId ?? null, detail: detail ? JSON.stringify(detail) : null },
    })
    .execute();
}

/** Whether this is in the book, by whomever and whyever. */
export async function isRecorded(
  db: Database,
  { action, subject, detail }: Required<Pick<Action, 'action' | 'subject' | 'detail'>>,
): Promise<boolean> {
  const { rows } = await statement`
    select from operator_action
    where action = ${action} and subject = ${subject} and detail = ${JSON.stringify(detail)}::jsonb
    limit 1`.execute(db);
  return rows.length > 0;
}

/** What was done under this key; undefined when nothing was. */
export async function findAction(
  db: Database,
  key: string,
): Promise<{ action: string; subject: string; detail: unknown; transferId: bigint | null } | undefined> {
  const { rows } = await statement<{ action: string; subject: string; detail: unknown; transferId: bigint | null }>`
    select action, subject, detail, transfer_id as "transferId" from operator_action where key = ${key}::uuid`.execute(
    db,
  );
  return rows[0];
}
