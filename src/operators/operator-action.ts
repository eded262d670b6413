import { type Fragment, fragment } from '../db/statement.ts';

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
