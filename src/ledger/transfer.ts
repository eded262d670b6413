import { type Fragment, fragment } from '../db/statement.ts';

/** A value, or where it differs from row to row, what to select of the rows that the entries are made from. */
type Value<T> = T | Fragment;

/** What the guards of the database know too (transfer_begins in db/migrations/). */
type TransferKind =
  | 'top_up'
  | 'charge'
  | 'settlement'
  | 'deposit'
  | 'spend'
  | 'reversal'
  | 'refund'
  | 'refund_failed'
  | 'dispute'
  | 'dispute_won'
  | 'debt_payment'
  | 'adjustment';

/** What an entry of the books begins as. */
export interface Entry {
  readonly kind: TransferKind;
  /** Where it was drawn before (`nextTransferId`); by default it is drawn now. */
  readonly id?: Fragment;
  /** Id of an account. */
  readonly debit: Value<string>;
  /** Id of an account. */
  readonly credit: Value<string>;
  /** In micro-USD. */
  readonly amount: Value<bigint>;
  /** What it is made for, such as a checkout session, a payment, a nonce or a refund; null for a charge. */
  readonly reference: Value<string> | null;
  /** Of the request that it belongs to, unless what it refers to tells that. */
  readonly traceId: Value<string> | null;
  /**
   * Of an entry that is pending; any other one is posted at once. Its rows tell what it pays for: `characters`,
   * `rate_pico_usd`, `model`, and `process_id`, the process that delivers it, each of which may be null.
   */
  readonly hold?: { /** By the database's clock; null for no lease. */ readonly leaseSeconds: number | null };
  /** Of a posted entry for speech: its rows tell `model`, `upstream` and `cost_pico_usd`, each of which may be null. */
  readonly isSpoken?: boolean;
}

/**
 * The one way into the books, for a statement that moves the balances too: inserts an entry for each row.
 * @param rows what stands behind `from`
 */
export const insertTransfer = (
  { kind, id, debit, credit, amount, reference, traceId, hold, isSpoken }: Entry,
  rows: Fragment,
): Fragment => fragment`
  insert into transfer (kind, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id,
                        state, ended_at, lease_until, lease_seconds, characters, rate_pico_usd, process_id, model, upstream, cost_pico_usd
                        ${id ? fragment`, id) overriding system value` : fragment`)`}
  select ${kind}, ${debit}, ${credit}, ${amount}, ${reference}, ${traceId}::uuid,
         ${hold ? pending(hold.leaseSeconds) : isSpoken ? SPOKEN : POSTED} ${id ? fragment`, ${id}` : fragment``}
  from ${rows}`;

/** Draws the id of an entry, for a statement that names it before the entry is inserted. */
export const nextTransferId = fragment`nextval('transfer_id_seq')`;

const pending = (leaseSeconds: number | null): Fragment => fragment`
  'pending', null, now() + make_interval(secs => ${leaseSeconds}::double precision), ${leaseSeconds}::real, characters, rate_pico_usd, process_id,
  model, null::text, null::bigint`;
const POSTED = fragment`'posted', now(), null::timestamptz, null::real, null::integer, null::bigint, null::integer,
  null::text, null::text, null::bigint`;
const SPOKEN = fragment`'posted', now(), null::timestamptz, null::real, null::integer, null::bigint, null::integer,
  model, upstream, cost_pico_usd`;
