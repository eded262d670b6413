import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';

/** Audio that was charged and did not reach its caller; kept for 10 minutes, the default of the table. */
export interface LostAnswer {
  /** UUID. */
  readonly id: string;
  readonly sizeBytes: number;
  readonly expiresAt: Date;
}

/** Takes note of an answer that is going to be stored, also when this is repeated. Tells its id. */
export async function addLostAnswer(db: Database, holdId: bigint, sizeBytes: number): Promise<string> {
  const { rows } = await statement<{ id: string }>`
    insert into lost_answer (hold_id, size_bytes) values (${holdId}, ${sizeBytes})
    on conflict (hold_id) do update set size_bytes = excluded.size_bytes
    returning id`.execute(db);
  return (rows[0] as { id: string }).id;
}

/** Its audio is in the store. */
export async function lostAnswerStored(db: Database, id: string): Promise<void> {
  await statement`update lost_answer set stored_at = now() where id = ${id}`.execute(db);
}

/** It can't be stored: nobody waits for it any more. What the store has got of it is deleted some minutes later. */
export async function lostAnswerFailed(db: Database, id: string): Promise<void> {
  await statement`update lost_answer set expires_at = ${givenUpAt} where id = ${id} and stored_at is null`.execute(db);
}

/** When the time of an answer is over that was not stored within 3 minutes. */
const givenUpAt = fragment`now() + interval '7 minutes'`;

/** Whether the answer that is named `lost` is being stored. */
export const isBeingStored = fragment`lost.stored_at is null and lost.expires_at > ${givenUpAt}`;

/**
 * Whether an answer that is named `lost` is offered: it is stored and in time, and the hold that is named `transfer` is
 * charged.
 */
export const isOffered = fragment`lost.stored_at is not null and lost.expires_at > now() and transfer.state = 'posted'
  and not exists (select from reversal where transfer_id = transfer.id)`;

/** An answer that is offered; undefined when there is none. @param id a UUID */
export async function findLostAnswer(db: Database, id: string): Promise<LostAnswer | undefined> {
  const { rows } = await statement<LostAnswer>`
    select lost.id, size_bytes as "sizeBytes", expires_at as "expiresAt"
    from lost_answer lost join transfer on transfer.id = lost.hold_id
    where lost.id = ${id} and ${isOffered}`.execute(db);
  return rows[0];
}

/** Ids of answers whose time is over, at most so many. */
export async function expiredLostAnswers(db: Database, limit: number): Promise<string[]> {
  const { rows } = await statement<{ id: string }>`
    select id from lost_answer where expires_at < now() order by expires_at limit ${limit}`.execute(db);
  return rows.map(({ id }) => id);
}

/** Forgets answers whose audio is deleted. */
export async function deleteLostAnswers(db: Database, ids: readonly string[]): Promise<void> {
  await statement`delete from lost_answer where id = any(${ids}::uuid[])`.execute(db);
}
