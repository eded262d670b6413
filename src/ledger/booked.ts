import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** Money that came in, or was taken back, from outside. */
export interface BookedMoney {
  readonly id: bigint;
  readonly kind: string;
  readonly amountMicroUsd: bigint;
  /** A wallet's address, or the beginning of a card account's id; null for direct speech. */
  readonly account: string | null;
  /** Id of a payment, or of a refund or dispute at the processor; null for a purchase (R40). */
  readonly reference: string | null;
}

/** The number of the newest transfer; 0 before the first one. */
export async function newestTransfer(db: Database): Promise<bigint> {
  const { rows } = await sql<{ id: bigint }>`select coalesce(max(id), 0) as id from transfer`.execute(db);
  return (rows[0] as { id: bigint }).id;
}

/** What was booked of the outside after that transfer, in its order. */
export async function bookedAfter(db: Database, newest: bigint): Promise<BookedMoney[]> {
  const { rows } = await sql<BookedMoney>`
    select transfer.id, transfer.kind, amount_micro_usd as "amountMicroUsd",
           case when transfer.kind <> 'top_up' then reference end as reference,
           coalesce(account.address, left(coalesce(account.owner_id, account.id)::text, 8) || '…') as account
    from transfer
    left join account on account.kind <> 'contra' and account.id in (debit_account_id, credit_account_id)
    where transfer.id > ${newest}
      and transfer.kind in ('top_up', 'refund', 'refund_failed', 'dispute', 'dispute_won', 'settlement', 'deposit')
    order by transfer.id`.execute(db);
  return rows;
}
