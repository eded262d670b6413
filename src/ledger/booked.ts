import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface BookedMoney {
  readonly id: string;
  readonly kind: string;
  readonly amountMicroUsd: bigint;
  readonly account: string | null;
  /** Id of a payment, refund or dispute; null for a purchase (R40). */
  readonly reference: string | null;
}

export async function newestPosition(db: Database): Promise<bigint> {
  const { position } = await db
    .selectFrom('transfer')
    .select((eb) => eb.fn.max('position').as('position'))
    .executeTakeFirstOrThrow();
  return position ?? 0n;
}

export async function bookedAfter(db: Database, newest: bigint): Promise<BookedMoney[]> {
  return db
    .selectFrom('transfer')
    .leftJoin('account', (join) =>
      join
        .on('account.kind', '<>', 'contra')
        .on(({ eb, ref }) => eb('account.id', 'in', [ref('debit_account_id'), ref('credit_account_id')])),
    )
    .select(['transfer.id', 'transfer.kind', 'amount_micro_usd as amountMicroUsd'])
    .select((eb) => [
      eb.case().when('transfer.kind', '<>', 'top_up').then(eb.ref('reference')).end().as('reference'),
      sql<string | null>`coalesce(account.address, left(coalesce(account.owner_id, account.id)::text, 8) || '…')`.as(
        'account',
      ),
    ])
    .where('position', '>', newest)
    .where('transfer.kind', 'in', [
      'top_up',
      'refund',
      'refund_failed',
      'dispute',
      'dispute_won',
      'settlement',
      'deposit',
    ])
    .orderBy('position')
    .execute();
}
