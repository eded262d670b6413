import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { asynchronousCommit, secondsAgo, secondsFromNow } from '../db/expressions.ts';
import { compiledOnce, GroupedStatement } from '../db/hot-statements.ts';
import {
  HOLD_COLUMNS,
  type HoldRequest,
  type HoldTerms,
  holdArrays,
  holdValues,
  type Placed,
  unlessLocked,
} from './hold.ts';
import { contra } from './transfer.ts';

export interface WalletHoldRequest extends HoldRequest {
  readonly address: string;
  readonly nonce: string;
  readonly digest?: Buffer | undefined;
  readonly expiry: bigint;
  /** Whether the amount is within the maximum that the payer has signed (R32). */
  readonly isWithinMaximum: boolean;
}

export type WalletHoldResult =
  | Placed
  /** Past or too far ahead by the database's clock (R34). */
  | { readonly outcome: 'expiry' }
  | { readonly outcome: 'unknown_account' }
  | {
      readonly outcome: 'nonce_spent' | 'over_max_amount' | 'insufficient_funds';
      readonly balanceMicroUsd: bigint;
    };

interface WalletHoldTerms extends HoldTerms {
  /** When the hold is voided unless it is renewed. */
  readonly leaseSeconds: number;
}

/** Places holds in statements that concurrent requests share, or alone where a separate statement must decide. */
export class WalletHolds {
  readonly #grouped: GroupedStatement<WalletHoldRequest, WalletHoldResult | undefined>;
  readonly #placeAlone: (request: WalletHoldRequest) => Promise<WalletHoldResult>;

  constructor(db: Database, leaseSeconds: number) {
    const placeTogether = walletHoldStatement({ leaseSeconds, locked: 'skip' });
    const placeAlone = singleWalletHold({ leaseSeconds });
    this.#grouped = new GroupedStatement({ run: (requests) => placeTogether(db, requests) });
    this.#placeAlone = (request) => placeAlone(db, request);
  }

  async place(request: WalletHoldRequest): Promise<WalletHoldResult> {
    return (await this.#grouped.execute(request)) ?? this.#placeAlone(request);
  }
}

interface Row {
  /** Of its request in the statement, from 1. */
  readonly ordinal: bigint;
  readonly outcome: WalletHoldResult['outcome'] | 'locked' | 'undecided';
  readonly account_id: string;
  readonly balance: bigint;
  readonly fence: number;
}

/**
 * Places holds on wallets and spends their nonces in one statement. It locks the accounts, inserts the nonces that the
 * balance covers, and debits what was inserted. So nonce and debit exist together or not at all. A balance that is too
 * small spends no nonce (R32). The new balance is computed from the locked row, because the snapshot may
 * show an older one.
 *
 * `may_spend`: within the maximum and the balance, after earlier holds of the statement; `spent`: its nonce was new, too.
 * So the outcome of a request that may spend and is not in `spent` is `nonce_spent`.
 * @returns undefined if a separate statement must decide: the nonce occurs twice, earlier holds of this statement used up
 *   the balance, or another transaction has locked the account
 */
function walletHoldStatement(terms: WalletHoldTerms) {
  const execute = compiledOnce((_db, values: ReturnType<typeof valuesOf>) => statementOf(values, terms));
  return async (db: Database, requests: readonly WalletHoldRequest[]): Promise<(WalletHoldResult | undefined)[]> => {
    const rows = new Map((await execute(db, valuesOf(requests))).map((row) => [Number(row.ordinal), row]));
    return Promise.all(requests.map((request, index) => resultOf(db, request, rows.get(index + 1) as Row)));
  };
}

const valuesOf = (requests: readonly WalletHoldRequest[]) => ({
  addresses: requests.map(({ address }) => address),
  nonces: requests.map(({ nonce }) => nonce),
  digests: requests.map(({ digest }) => digest),
  expiries: requests.map(({ expiry }) => expiry),
  withinMaximum: requests.map(({ isWithinMaximum }) => isWithinMaximum),
  ...holdValues(requests),
});

/**
 * Columns of a hold: HOLD_COLUMNS of hold.ts. `turn` is a request's place among those of its wallet, `total` what they cost
 * up to it. The balance is that after its own debit, else after the others', else as it was.
 */
const statementOf = (values: ReturnType<typeof valuesOf>, terms: WalletHoldTerms): RawBuilder<Row> => sql<Row>`
    /* hold_prepaid */ with request as materialized (
      select *, ${inTime(sql`expiry`)} as in_time
      from unnest(${values.addresses}::text[], ${values.nonces}::text[], ${values.digests}::bytea[],
                  ${values.expiries}::bigint[], ${values.withinMaximum}::boolean[], ${holdArrays(values)})
        with ordinality as given (address, nonce, digest, expiry, is_within_maximum, ${HOLD_COLUMNS}, ordinal)
    ), payer as materialized (
      select account.id as account_id, account.address, balance_micro_usd as balance
      from (select distinct address from request where in_time) named join account on account.address = named.address
      for no key update of account ${unlessLocked(terms)}
    ), ranked as materialized (
      select ordinal, account_id, balance, nonce, digest, ${HOLD_COLUMNS}, row_number() over wallet_spends as turn,
             is_within_maximum and sum(amount) over wallet_spends <= balance
               and row_number() over (partition by account_id, nonce order by ordinal) = 1 as may_spend
      from request join payer on payer.address = request.address where in_time
      window wallet_spends as (partition by account_id order by ordinal)
    ), spent as (
      insert into prepaid_nonce (account_id, nonce, request_digest, hold_id)
      select account_id, nonce, digest, hold_id from ranked where may_spend
      on conflict do nothing
      returning hold_id as spent_id
    ), paid as materialized (
      select account_id, balance, nonce, ${HOLD_COLUMNS}, ordinal as paid_ordinal,
             sum(amount) over (partition by account_id order by ordinal)::bigint as total
      from ranked join spent on spent_id = hold_id
    ), debit as (
      update account set balance_micro_usd = due.balance - due.total
      from (select account_id, balance, max(total) as total from paid group by account_id, balance) due
      where account.id = due.account_id
      returning account.id as debited_id, account.balance_micro_usd as left_over
    ), hold as (
      insert into transfer (id, kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id,
                            lease_until, characters, rate_pico_usd, model)
      select hold_id, 'spend', 'pending', account_id, ${contra.prepaidRevenue}, amount, nonce, trace_id,
             ${secondsFromNow(terms.leaseSeconds)}, characters, rate_pico_usd, model
      from paid join debit on debited_id = account_id
      returning id as held_id, fence
    )
    select request.ordinal, ranked.account_id, fence,
           coalesce(paid.balance - paid.total, debit.left_over, ranked.balance) as balance,
           case when not request.in_time then 'expiry'
                when ranked.account_id is null then coalesce(
                  (select 'locked' from account where account.address = request.address), 'unknown_account'
                )
                when held_id is not null then 'placed'
                when may_spend then 'nonce_spent'
                when turn > 1 then 'undecided'
                when not is_within_maximum then 'over_max_amount'
                else 'insufficient_funds' end as outcome, ${asynchronousCommit}
    from request left join ranked on ranked.ordinal = request.ordinal left join debit on debited_id = ranked.account_id
      left join paid on paid_ordinal = request.ordinal
      left join hold on held_id = paid.hold_id`;

/** Places one hold, and waits for an account that another transaction has locked. */
export function singleWalletHold(terms: Omit<WalletHoldTerms, 'locked'>) {
  const place = walletHoldStatement({ ...terms, locked: 'wait' });
  return async (db: Database, request: WalletHoldRequest): Promise<WalletHoldResult> => {
    const [result] = await place(db, [request]);
    return result as WalletHoldResult;
  };
}

async function resultOf(
  db: Database,
  { id, nonce, amountMicroUsd }: WalletHoldRequest,
  { outcome, account_id: accountId, balance: balanceMicroUsd, fence }: Row,
): Promise<WalletHoldResult | undefined> {
  switch (outcome) {
    case 'placed':
      return { outcome, hold: { id, fence, accountId, amountMicroUsd, balanceMicroUsd } };
    case 'nonce_spent':
      return { outcome, balanceMicroUsd };
    case 'over_max_amount':
    case 'insufficient_funds': {
      // The statement's snapshot may be older than the spend that emptied the balance; this query's is not.
      const now = await readNonce(db, accountId, nonce);
      return { outcome: now.isSpent ? 'nonce_spent' : outcome, balanceMicroUsd: now.balanceMicroUsd };
    }
    case 'expiry':
    case 'unknown_account':
      return { outcome };
    case 'locked': // The account exists, and another transaction has locked it.
    case 'undecided': // Earlier holds of this statement took the balance, or have this nonce.
      return undefined;
  }
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

// How long the signature of a prepaid request is valid, and what an earlier request with its nonce has spent.

/** The longest lifetime of a signature (R30). */
export const SIGNATURE_LIFETIME_SECONDS = 120;
/** How far a client's clock may be ahead of the database's (R30). */
const CLOCK_LEEWAY_SECONDS = 5;
export const MAX_EXPIRY_SECONDS = SIGNATURE_LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS;

/** Condition: the expiry, in Unix seconds, is neither past nor too far ahead by the database's clock (R30, R34). */
export const inTime = (expiry: Expression<unknown>): RawBuilder<SqlBool> => sql`
  ${expiry}::bigint > extract(epoch from clock_timestamp())
  and ${expiry}::bigint <= extract(epoch from clock_timestamp()) + ${MAX_EXPIRY_SECONDS}::int`;

/** Whether an expiry, in Unix seconds, is acceptable by the database's clock (R30, R34). */
export async function isInTime(db: Database, expiry: bigint): Promise<boolean> {
  const { isInTime } = await db.selectNoFrom(inTime(sql.val(expiry)).as('isInTime')).executeTakeFirstOrThrow();
  return isInTime === true;
}

/** How long a spent nonce is kept at least (R34). */
export const NONCE_RETENTION_HOURS = 24;

/**
 * Whether a nonce with this expiry would still be stored: it was spent at the earliest when its expiry was as far ahead as
 * is allowed. If not, its outcome is unknown, not "not charged".
 */
export async function isNonceKept(db: Database, expiry: bigint): Promise<boolean> {
  const age = sql<SqlBool>`${expiry}::bigint - ${MAX_EXPIRY_SECONDS}::int > extract(epoch from clock_timestamp())
    - ${NONCE_RETENTION_HOURS * 3600}::int`;
  const { isKept } = await db.selectNoFrom(age.as('isKept')).executeTakeFirstOrThrow();
  return isKept === true;
}

export async function isNonceSpent(db: Database, address: string, nonce: string): Promise<boolean> {
  const spent = selectNonce(db, address, nonce).select('prepaid_nonce.nonce');
  return (await spent.executeTakeFirst()) !== undefined;
}

const selectNonce = (db: Database, address: string, nonce: string) =>
  db
    .selectFrom('account')
    .innerJoin('prepaid_nonce', 'prepaid_nonce.account_id', 'account.id')
    .where('address', '=', address)
    .where('prepaid_nonce.nonce', '=', nonce);

const PRUNED_NONCES = 1000;

/** Deletes a batch of nonces after their retention; their signatures expired long ago. Returns the count. */
export async function pruneNonces(db: Database): Promise<number> {
  const age = sql<Date>`(select clock_timestamp() - make_interval(hours => ${NONCE_RETENTION_HOURS + 1}::int))`;
  const old = db
    .selectFrom('prepaid_nonce')
    .select(sql`ctid`.as('ctid'))
    .where('spent_at', '<', age)
    .orderBy('spent_at')
    .limit(PRUNED_NONCES)
    .forUpdate()
    .skipLocked();
  const nonces = db.deleteFrom('prepaid_nonce').where(sql<SqlBool>`ctid = any(array${old})`);
  return Number((await nonces.executeTakeFirst()).numDeletedRows);
}

export type SpendState = 'pending' | 'charged' | 'restored';

export interface PreviousDebit {
  readonly holdId: string;
  readonly amountMicroUsd: bigint;
  readonly balanceMicroUsd: bigint;
  readonly state: SpendState;
}

export async function findAudioEnd(db: Database, id: string, seconds: number): Promise<Date | undefined> {
  const row = await db
    .selectFrom('transfer')
    .select(sql<Date>`ended_at + make_interval(secs => ${seconds}::double precision)`.as('end'))
    .where('id', '=', id)
    .where('kind', '=', 'spend')
    .where('state', '=', 'posted')
    .where('ended_at', '>', secondsAgo(seconds))
    .executeTakeFirst();
  return row?.end;
}

const SPEND_STATES: Readonly<Record<string, SpendState>> = {
  pending: 'pending',
  posted: 'charged',
  voided: 'restored',
};

/** Finds the debit of exactly this request (R60); undefined if its nonce is unspent or another request spent it. */
export async function findSpend(
  db: Database,
  address: string,
  nonce: string,
  digest: Buffer,
): Promise<PreviousDebit | undefined> {
  const debit = await selectNonce(db, address, nonce)
    .innerJoin('transfer', 'transfer.id', 'prepaid_nonce.hold_id')
    .select(['transfer.id', 'amount_micro_usd', 'balance_micro_usd', 'state'])
    .where('request_digest', '=', digest)
    .executeTakeFirst();
  return (
    debit && {
      holdId: debit.id,
      amountMicroUsd: debit.amount_micro_usd,
      balanceMicroUsd: debit.balance_micro_usd ?? 0n,
      state: SPEND_STATES[debit.state] as SpendState,
    }
  );
}
