import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';

/** What was given back after it had been charged: the kind of what is reversed, the amount given back, and the reason. */
export async function reversalsIn(db: Database): Promise<{ kind: string; amount: bigint; reason: string }[]> {
  const { rows } = await sql<{ kind: string; amount: bigint; reason: string }>`
    select charge.kind, transfer.amount_micro_usd as amount, reversal.reason
    from transfer
    join reversal on reversal.transfer_id::text = transfer.reference
    join transfer charge on charge.id = reversal.transfer_id
    where transfer.kind = 'reversal' order by transfer.id`.execute(db);
  return rows;
}
