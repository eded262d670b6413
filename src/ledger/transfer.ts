import { type Expression, type QueryCreator, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { now } from '../db/expressions.ts';

/** The database's triggers list the same kinds (transfer_begins in db/migrations/). */
type TransferKind =
  | 'top_up'
  | 'charge'
  | 'settlement'
  | 'deposit'
  | 'spend'
  | 'refund'
  | 'refund_failed'
  | 'dispute'
  | 'dispute_won'
  | 'debt_payment'
  | 'adjustment';

/** Contra accounts of users' entries. They store no balance and are only summed. */
export const contra = {
  cardClearing: '00000000-0000-4000-8000-000000000001',
  cardRevenue: '00000000-0000-4000-8000-000000000002',
  usdcClearing: '00000000-0000-4000-8000-000000000003',
  usdcRevenue: '00000000-0000-4000-8000-000000000004',
  prepaidRevenue: '00000000-0000-4000-8000-000000000005',
  cardAdjustments: '00000000-0000-4000-8000-000000000006',
} as const;

interface Entry {
  readonly kind: TransferKind;
  readonly debit: string | Expression<string>;
  readonly credit: string;
  readonly amountMicroUsd: bigint;
  readonly reference: string;
}

/** An entry that is posted at once, for the `with` of the statement that changes the balances. */
export const insertPosted = (trx: Database, { kind, debit, credit, amountMicroUsd, reference }: Entry) =>
  trx
    .insertInto('transfer')
    .values({
      kind,
      state: 'posted',
      debit_account_id: debit,
      credit_account_id: credit,
      amount_micro_usd: amountMicroUsd,
      reference,
      ended_at: now,
    })
    .returning('id');

/** Changes the balance of a locked account, and inserts the entry of it. Returns the id of the entry. */
export async function book(trx: Database, accountId: string, changeMicroUsd: bigint, entry: Entry): Promise<string> {
  const { id } = await trx
    .with('entry', () => insertPosted(trx, entry))
    .updateTable('account')
    .from('entry')
    .set((eb) => ({ balance_micro_usd: eb('balance_micro_usd', '+', changeMicroUsd) }))
    .where('account.id', '=', accountId)
    .returning('entry.id')
    .executeTakeFirstOrThrow();
  return id;
}

/** For the conflict of an inserted account with the one that is there. */
export const ADDED = { balance_micro_usd: sql<bigint>`account.balance_micro_usd + excluded.balance_micro_usd` };

interface CardMoney {
  readonly accountId: string;
  readonly livemode: boolean;
  readonly amountMicroUsd: bigint;
  readonly reference: string;
}

/** Credits a card account, which its first credit creates (R15, R16). */
export async function creditCard(trx: Database, { accountId, livemode, amountMicroUsd, reference }: CardMoney) {
  const entry = { kind: 'top_up', debit: contra.cardClearing, credit: accountId, amountMicroUsd, reference } as const;
  const account = await trx
    .with('entry', () => insertPosted(trx, entry))
    .insertInto('account')
    .values({ id: accountId, kind: 'card', livemode, balance_micro_usd: amountMicroUsd })
    .onConflict((oc) => oc.column('id').doUpdateSet(ADDED))
    .returning(['balance_micro_usd', 'is_indebted'])
    .executeTakeFirstOrThrow();
  return { balanceMicroUsd: account.balance_micro_usd ?? 0n, isIndebted: account.is_indebted };
}

/** Columns of x402_payment that a statement which settles payments returns as its `payment`. */
export const BOOKED_COLUMNS = [
  'x402_payment.id',
  'x402_payment.purpose',
  'x402_payment.payer',
  'x402_payment.amount_micro_usd',
  'x402_payment.trace_id',
  'x402_payment.model',
  'x402_payment.upstream',
  'x402_payment.cost_pico_usd',
  'x402_payment.receipt',
] as const;

type BookedPayment = Pick<
  DB['x402_payment'],
  'amount_micro_usd' | 'cost_pico_usd' | 'model' | 'payer' | 'receipt' | 'trace_id' | 'upstream'
> & { id: string; purpose: string };

/** Books the settled rows of `payment` as revenue or deposit. The first deposit creates the payer's wallet (R35, R71). */
export const bookPayment = (db: QueryCreator<DB & { payment: BookedPayment }>) =>
  db
    .with('revenue', (qb) =>
      qb
        .insertInto('transfer')
        .columns([...ENTRY_COLUMNS, 'model', 'upstream', 'cost_pico_usd'])
        .expression((eb) =>
          eb
            .selectFrom('payment')
            .where('purpose', '=', 'speech')
            .select([
              eb.val('settlement').as('kind'),
              eb.val('posted').as('state'),
              eb.val(contra.usdcClearing).as('debit_account_id'),
              eb.val(contra.usdcRevenue).as('credit_account_id'),
              'amount_micro_usd',
              eb.cast<string>('id', 'text').as('reference'),
              'trace_id',
              now.as('ended_at'),
              'model',
              'upstream',
              'cost_pico_usd',
            ]),
        ),
    )
    .with('wallet', (qb) =>
      qb
        .insertInto('account')
        .columns(['kind', 'address', 'balance_micro_usd'])
        .expression((eb) =>
          eb
            .selectFrom('payment')
            .where('purpose', '=', 'deposit')
            .select([eb.val('wallet').as('kind'), 'payer', 'amount_micro_usd']),
        )
        .onConflict((oc) => oc.column('address').doUpdateSet(ADDED))
        .returning(['account.id as wallet_id', 'address']),
    )
    .with('deposit', (qb) =>
      qb
        .insertInto('transfer')
        .columns(ENTRY_COLUMNS)
        .expression((eb) =>
          eb
            .selectFrom('payment')
            .innerJoin('wallet', 'wallet.address', 'payment.payer')
            .where('purpose', '=', 'deposit')
            .select([
              eb.val('deposit').as('kind'),
              eb.val('posted').as('state'),
              eb.val(contra.usdcClearing).as('debit_account_id'),
              'wallet_id',
              'amount_micro_usd',
              eb.cast<string>('id', 'text').as('reference'),
              'trace_id',
              now.as('ended_at'),
            ]),
        ),
    );

const ENTRY_COLUMNS = [
  'kind',
  'state',
  'debit_account_id',
  'credit_account_id',
  'amount_micro_usd',
  'reference',
  'trace_id',
  'ended_at',
] as const;
