import { type Expression, type QueryCreator, type RawBuilder, type Selectable, type SqlBool, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { MAX_HOLD_LEASE_SECONDS } from '../config/work-limits.ts';
import type { Database } from '../db/database.ts';
import { leaseHasEnded, now, secondsFromNow, statementName, unnest } from '../db/expressions.ts';
import { compiledOnce } from '../db/hot-statements.ts';
import { LeaseRenewer } from '../db/lease.ts';
import { testPoint } from '../lib/test-point.ts';

export interface UsageRecord {
  readonly model: string;
  /** UTF-16 code units of the trimmed text (R1). */
  readonly characters: number;
  /** In 10^-12 USD per character; null for a quote whose rate the catalog no longer has. */
  readonly ratePicoUsd: bigint | null;
  readonly traceId: string;
}

export interface UpstreamUsage {
  readonly name: string;
  /** The operator's cost in 10^-12 USD per character; null if the catalog has none. */
  readonly costPicoUsd: bigint | null;
}

/**
 * A pending transfer: its amount has left the user's balance, and exactly one capture or void ends it.
 *
 *     (none) -- place --> pending -- captureHolds --> posted
 *                         pending -- voidHold, or voidExpiredHolds after its lease --> voided
 *
 * A hold with a lease commits without waiting for the disk. The commit of its capture waits, and so makes the hold durable
 * too. A hold that a crash loses was never captured, and is not charged (R55).
 *
 * The fence names the present owner. A take-over raises it, and the former owner's capture or void then ends nothing.
 */
export interface HoldRecord {
  readonly id: string;
  readonly fence: number;
  readonly accountId: string;
  readonly amountMicroUsd: bigint;
  readonly balanceMicroUsd: bigint;
}

type HoldRef = Pick<HoldRecord, 'id' | 'fence'>;

export interface HoldRequest {
  readonly id: string;
  readonly amountMicroUsd: bigint;
  readonly usage?: UsageRecord | undefined;
}

export interface HoldTerms {
  /** Whether to wait for an account that another transaction has locked, or to skip it. */
  readonly locked: 'wait' | 'skip';
}

export const holdValues = (requests: readonly HoldRequest[]) => ({
  ids: requests.map(({ id }) => id),
  amounts: requests.map(({ amountMicroUsd }) => amountMicroUsd),
  traceIds: requests.map(({ usage }) => usage?.traceId),
  characters: requests.map(({ usage }) => usage?.characters),
  rates: requests.map(({ usage }) => usage?.ratePicoUsd),
  models: requests.map(({ usage }) => usage?.model),
});

/** Of a raw statement's `unnest`, in the order of HOLD_COLUMNS. */
export const holdArrays = (values: ReturnType<typeof holdValues>): RawBuilder<unknown> => sql`
  ${values.ids}::uuid[], ${values.amounts}::bigint[], ${values.traceIds}::uuid[], ${values.characters}::integer[],
  ${values.rates}::bigint[], ${values.models}::text[]`;

export const HOLD_COLUMNS = sql`hold_id, amount, trace_id, characters, rate_pico_usd, model`;

export const unlessLocked = ({ locked }: HoldTerms): RawBuilder<unknown> =>
  locked === 'skip' ? sql`skip locked` : sql``;

export interface Placed {
  readonly outcome: 'placed';
  readonly hold: HoldRecord;
}

/**
 * The same as `state = 'pending'`, with which the planner would read the index of all pending holds in a batch statement,
 * instead of the keys.
 */
const HAS_NOT_ENDED = sql<SqlBool>`ended_at is null`;

/** Makes leases end that many seconds from now. Returns the ids of holds that are still pending. */
export async function renewHolds(
  db: Database,
  holds: readonly HoldRef[],
  leaseSeconds: number,
): Promise<ReadonlySet<string>> {
  const held = unnest('held', {
    id: ['uuid', holds.map(({ id }) => id)],
    fence: ['integer', holds.map(({ fence }) => fence)],
  });
  const rows = await db
    .updateTable('transfer')
    .from(held)
    .set({ lease_until: secondsFromNow(leaseSeconds) })
    .whereRef('transfer.id', '=', 'held.id')
    .whereRef('transfer.fence', '=', 'held.fence')
    .where(HAS_NOT_ENDED)
    .returning('transfer.id')
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** Renews the leases of the holds that this process has placed. */
export const holdLeases = (db: Database, seconds: number): LeaseRenewer<HoldRecord> =>
  new LeaseRenewer({ seconds, keyOf: ({ id }) => id, renew: (holds) => renewHolds(db, holds, seconds) });

export interface CaptureRequest extends HoldRef {
  readonly upstream?: UpstreamUsage | undefined;
}

/** Posts holds. Returns false for one that was voided or taken over. Safe to repeat after a lost response. */
export async function captureHolds(db: Database, holds: readonly CaptureRequest[]): Promise<boolean[]> {
  const captured = await capture(db, ownedValues(holds));
  testPoint('hold captured');
  const posted = new Set(captured.map(({ id }) => id));
  return Promise.all(holds.map((hold) => posted.has(hold.id) || isPosted(db, hold)));
}

type OwnedValues = ReturnType<typeof ownedValues>;

/** The values of `ownedRows`. */
export const ownedValues = (owned: readonly CaptureRequest[]) => ({
  ids: owned.map(({ id }) => id),
  fences: owned.map(({ fence }) => fence),
  upstreams: owned.map(({ upstream }) => upstream?.name ?? null),
  costs: owned.map(({ upstream }) => upstream?.costPicoUsd ?? null),
});

/** Rows named `owned`: what the caller owns by its fence, and who has spoken for it at which cost. */
export const ownedRows = ({ ids, fences, upstreams, costs }: OwnedValues) =>
  unnest('owned', {
    id: ['uuid', ids],
    fence: ['integer', fences],
    upstream: ['text', upstreams],
    cost: ['bigint', costs],
  });

const capture = compiledOnce((db, values: OwnedValues) =>
  db
    .updateTable('transfer')
    .from(ownedRows(values))
    .set((eb) => ({
      state: 'posted',
      ended_at: now,
      upstream: eb.ref('owned.upstream'),
      cost_pico_usd: eb.ref('owned.cost'),
    }))
    .whereRef('transfer.id', '=', 'owned.id')
    .whereRef('transfer.fence', '=', 'owned.fence')
    .where(HAS_NOT_ENDED)
    .returning('transfer.id')
    .modifyEnd(statementName('capture')),
);

export async function captureHold(db: Database, hold: CaptureRequest): Promise<boolean> {
  return (await captureHolds(db, [hold]))[0] === true;
}

/** If a capture waited for another one of the same hold, its snapshot is too old to see that one. This query sees it. */
async function isPosted(db: Database, { id, fence }: HoldRef): Promise<boolean> {
  const transfer = db.selectFrom('transfer').select('id').where('id', '=', id).where('fence', '=', fence);
  return (await transfer.where('state', '=', 'posted').executeTakeFirst()) !== undefined;
}

interface VoidResult {
  readonly isVoided: boolean;
  readonly isCharged: boolean;
  readonly balanceMicroUsd: bigint;
}

/** Restores the hold, once (R18, R33). If it has already ended, reads how; a crash or failover may have lost it. */
export async function voidHold(db: Database, hold: HoldRef & Pick<HoldRecord, 'accountId'>): Promise<VoidResult> {
  const refunded = await db
    .with('voided', (qb) =>
      qb
        .updateTable('transfer')
        .set({ state: 'voided', ended_at: now })
        .where('id', '=', hold.id)
        .where('fence', '=', hold.fence)
        .where('state', '=', 'pending')
        .returning(['debit_account_id', 'amount_micro_usd']),
    )
    .updateTable('account')
    .from('voided')
    .set((eb) => ({ balance_micro_usd: eb('balance_micro_usd', '+', eb.ref('voided.amount_micro_usd')) }))
    .whereRef('account.id', '=', 'voided.debit_account_id')
    .returning('balance_micro_usd')
    .modifyEnd(statementName('void'))
    .executeTakeFirst();
  if (refunded) return { isVoided: true, isCharged: false, balanceMicroUsd: refunded.balance_micro_usd ?? 0n };
  const known = await db
    .selectFrom('account')
    .select((eb) => [
      'balance_micro_usd as balance',
      eb
        .exists(eb.selectFrom('transfer').select('id').where('id', '=', hold.id).where('state', '=', 'posted'))
        .as('isPosted'),
    ])
    .where('id', '=', hold.accountId)
    .executeTakeFirst();
  return { isVoided: false, isCharged: Boolean(known?.isPosted), balanceMicroUsd: known?.balance ?? 0n };
}

const HOLD_LEASE_HAS_ENDED = leaseHasEnded(MAX_HOLD_LEASE_SECONDS);

/** Voids holds whose lease has expired, because their process died or lost the database. Returns the count. */
export async function voidExpiredHolds(db: Database): Promise<number> {
  const expired = (comparison: '<' | '>', time: Expression<Date>) =>
    db
      .selectFrom('transfer')
      .select('id')
      .where('state', '=', sql.lit('pending'))
      .where('lease_until', comparison, time)
      .where(HOLD_LEASE_HAS_ENDED)
      .orderBy('lease_until')
      .limit(sql.lit(1000))
      .forUpdate()
      .skipLocked();
  const [past, tooFarAhead] = [expired('<', now), expired('>', secondsFromNow(MAX_HOLD_LEASE_SECONDS))];
  const { voided } = await db
    .with('voided', (qb) =>
      qb
        .updateTable('transfer')
        .set({ state: 'voided', ended_at: now })
        .where('id', '=', sql<string>`any(array${past} || array${tooFarAhead})`)
        .where('state', '=', 'pending')
        .returning(['debit_account_id', 'amount_micro_usd']),
    )
    .with('refund', (qb) =>
      qb
        .selectFrom('voided')
        .select(['debit_account_id', sql<bigint>`sum(amount_micro_usd)::bigint`.as('amount')])
        .groupBy('debit_account_id'),
    )
    .with('refunded', (qb) =>
      qb
        .updateTable('account')
        .from('refund')
        .set((eb) => ({ balance_micro_usd: eb('balance_micro_usd', '+', eb.ref('refund.amount')) }))
        .whereRef('account.id', '=', 'refund.debit_account_id'),
    )
    .selectFrom('voided')
    .select((eb) => eb.fn.countAll<bigint>().as('voided'))
    .executeTakeFirstOrThrow();
  return Number(voided);
}

/** Counts pending holds, and those whose lease has expired. A job's hold has no lease. */
export async function pendingHolds(db: Database) {
  const row = await db
    .selectFrom('transfer')
    .where('state', '=', sql.lit('pending'))
    .select([
      sql<number>`count(*)::int`.as('count'),
      sql<number>`(count(*) filter (where ${HOLD_LEASE_HAS_ENDED}))::int`.as('past_lease'),
      sql<number>`coalesce(greatest(extract(epoch from now() - min(lease_until)), 0), 0)::float8`.as(
        'oldest_past_lease_seconds',
      ),
    ])
    .executeTakeFirstOrThrow();
  return {
    count: row.count,
    pastLease: row.past_lease,
    oldestPastLeaseSeconds: row.oldest_past_lease_seconds,
  };
}

/** Takes over the hold of each row of `claimed`, within the statement that takes over its job. */
export const takeOverHolds = (qb: QueryCreator<DB & { claimed: Selectable<DB['job']> }>) =>
  qb
    .updateTable('transfer')
    .from('claimed')
    .set((eb) => ({ fence: eb.ref('claimed.fence') }))
    .whereRef('transfer.id', '=', 'claimed.hold_id')
    .where('transfer.state', '=', 'pending')
    .returning(['transfer.amount_micro_usd', 'transfer.model as model_id']);

export async function holdAmount(db: Database, id: string): Promise<bigint> {
  const transfer = db.selectFrom('transfer').select('amount_micro_usd').where('id', '=', id);
  return (await transfer.executeTakeFirstOrThrow()).amount_micro_usd;
}
