import { type RawBuilder, sql } from 'kysely';
import { compiledOnce } from '../db/compiled-once.ts';
import type { Database } from '../db/database.ts';
import { asynchronousCommit, secondsFromNow } from '../db/expressions.ts';
import {
  HOLD_COLUMNS,
  type Hold,
  type HoldRequest,
  type HoldTerms,
  holdArrays,
  holdValues,
  unlessLocked,
} from './hold.ts';
import { contra } from './transfer.ts';
import { inTime } from './wallets.ts';

export interface WalletHoldRequest extends HoldRequest {
  readonly address: string;
  readonly nonce: string;
  readonly digest?: Buffer | undefined;
  readonly expiry: bigint;
  readonly isPermitted: boolean;
}

export type WalletHoldResult =
  | { readonly outcome: 'held'; readonly hold: Hold }
  /** Past or too far ahead by the database's clock (R34). */
  | { readonly outcome: 'expiry' }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'nonce_spent' | 'insufficient_funds'; readonly balanceMicroUsd: bigint };

interface WalletHoldTerms extends HoldTerms {
  /** When the hold is voided unless it is renewed. */
  readonly leaseSeconds: number;
}

interface Row {
  readonly place: bigint;
  readonly amount: bigint;
  readonly in_time: boolean;
  readonly id: string | null;
  readonly is_known: boolean | null;
  readonly balance: bigint;
  readonly turn: number;
  readonly affordable: boolean;
  readonly remaining: bigint;
  readonly held_id: string | null;
  readonly fence: number;
}

/**
 * Places holds on wallets and spends their nonces in one statement. It locks the accounts, inserts the nonces that the
 * balance covers, and debits what was inserted. So nonce and debit exist together or not at all. A balance that is too
 * small spends no nonce (R32). The new balance is computed from the locked row, because the snapshot may
 * show an older one.
 * @returns undefined if a separate statement must decide: the nonce occurs twice, earlier holds of this statement used up
 *   the balance, or another transaction has locked the account
 */
export function walletHoldStatement(terms: WalletHoldTerms) {
  const place = compiledOnce((_db, values: ReturnType<typeof valuesOf>) => placeHolds(values, terms));
  return async (db: Database, asked: readonly WalletHoldRequest[]): Promise<(WalletHoldResult | undefined)[]> => {
    const rows = await place(db, valuesOf(asked));
    const found = new Map(rows.map((row) => [Number(row.place), row]));
    return Promise.all(asked.map((request, index) => readPlaced(db, request, found.get(index + 1) as Row)));
  };
}

const valuesOf = (asked: readonly WalletHoldRequest[]) => ({
  addresses: asked.map(({ address }) => address),
  nonces: asked.map(({ nonce }) => nonce),
  digests: asked.map(({ digest }) => digest),
  expiries: asked.map(({ expiry }) => expiry),
  permitted: asked.map(({ isPermitted }) => isPermitted),
  ...holdValues(asked),
});

const placeHolds = (values: ReturnType<typeof valuesOf>, terms: WalletHoldTerms): RawBuilder<Row> => sql<Row>`
    /* hold_prepaid */ with asked as materialized (
      select *, ${inTime(sql`expiry`)} as in_time
      from unnest(${values.addresses}::text[], ${values.nonces}::text[], ${values.digests}::bytea[],
                  ${values.expiries}::bigint[], ${values.permitted}::boolean[], ${holdArrays(values)})
        with ordinality as asked (address, nonce, digest, expiry, is_permitted, ${HOLD_COLUMNS}, place)
    ), payer as materialized (
      select account.id, account.address, balance_micro_usd as balance
      from (select distinct address from asked where in_time) asked join account on account.address = asked.address
      for no key update of account ${unlessLocked(terms)}
    ), ranked as materialized (
      select place, id, balance, nonce, digest, ${HOLD_COLUMNS}, row_number() over wallet_spends as turn,
             is_permitted and sum(amount) over wallet_spends <= balance
               and row_number() over (partition by id, nonce order by place) = 1 as affordable
      from asked join payer on payer.address = asked.address where in_time
      window wallet_spends as (partition by id order by place)
    ), spent as (
      insert into prepaid_nonce (account_id, nonce, request_digest, hold_id)
      select id, nonce, digest, hold_id from ranked where affordable
      on conflict do nothing
      returning hold_id as spent_id
    ), paid as materialized (
      select id, balance, nonce, ${HOLD_COLUMNS}, place as paid_place,
             sum(amount) over (partition by id order by place)::bigint as total
      from ranked join spent on spent_id = hold_id
    ), debit as (
      update account set balance_micro_usd = due.balance - due.total
      from (select id, balance, max(total) as total from paid group by id, balance) due
      where account.id = due.id
      returning account.id as debited_id, account.balance_micro_usd as left_over
    ), hold as (
      insert into transfer (id, kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id,
                            lease_until, characters, rate_pico_usd, model)
      select hold_id, 'spend', 'pending', id, ${contra.prepaidRevenue}, amount, nonce, trace_id,
             ${secondsFromNow(terms.leaseSeconds)}, characters, rate_pico_usd, model
      from paid join debit on debited_id = id
      returning id as held_id, fence
    )
    select asked.place, asked.amount, asked.in_time, ranked.id, coalesce(debit.left_over, ranked.balance) as balance,
           ranked.turn::integer, affordable, paid.balance - paid.total as remaining, held_id, fence,
           case when ranked.id is null then (
             select true from account where account.address = asked.address
           ) end as is_known, ${asynchronousCommit}
    from asked left join ranked on ranked.place = asked.place left join debit on debited_id = ranked.id
      left join paid on paid_place = asked.place
      left join hold on held_id = paid.hold_id`;

export async function placeWalletHold(
  db: Database,
  request: WalletHoldRequest,
  terms: Pick<WalletHoldTerms, 'leaseSeconds'>,
): Promise<WalletHoldResult> {
  const [placed] = await walletHoldStatement({ ...terms, locked: 'wait' })(db, [request]);
  return placed as WalletHoldResult;
}

async function readPlaced(db: Database, { nonce }: WalletHoldRequest, row: Row): Promise<WalletHoldResult | undefined> {
  if (!row.in_time) return { outcome: 'expiry' };
  if (row.id === null) return row.is_known ? undefined : { outcome: 'unknown_account' };
  if (row.held_id !== null) {
    const { held_id: id, fence, id: accountId, amount: amountMicroUsd, remaining: balanceMicroUsd } = row;
    return { outcome: 'held', hold: { id, fence, accountId, amountMicroUsd, balanceMicroUsd, nonce } };
  }
  if (row.affordable) return { outcome: 'nonce_spent', balanceMicroUsd: row.balance };
  if (row.turn > 1) return undefined;
  // The statement's snapshot may be older than the spend that emptied the balance; this query's is not.
  const { isSpent, balanceMicroUsd } = await readNonce(db, row.id, nonce);
  return { outcome: isSpent ? 'nonce_spent' : 'insufficient_funds', balanceMicroUsd };
}

async function readNonce(db: Database, accountId: string, nonce: string) {
  const row = await db
    .selectFrom('account')
    .leftJoin('prepaid_nonce', (join) =>
      join.onRef('account_id', '=', 'account.id').on('prepaid_nonce.nonce', '=', nonce),
    )
    .select(['balance_micro_usd', 'hold_id'])
    .where('account.id', '=', accountId)
    .executeTakeFirst();
  return { isSpent: row !== undefined && row.hold_id !== null, balanceMicroUsd: row?.balance_micro_usd ?? 0n };
}
