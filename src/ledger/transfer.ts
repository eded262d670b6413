import { type Fragment, fragment } from '../db/statement.ts';
import type { PaidFor } from './paid-for.ts';

/** A value, or where it differs from row to row, what to select of the rows that the entries are made from. */
type Value<T> = T | Fragment;

/** What an entry of the books begins as. */
export interface Entry {
  readonly kind: 'top_up' | 'charge' | 'settlement' | 'deposit' | 'spend' | 'reversal';
  /** Id of an account. */
  readonly debit: Value<string>;
  /** Id of an account. */
  readonly credit: Value<string>;
  /** In micro-USD. */
  readonly amount: Value<bigint>;
  /** What it is made for: a checkout session, a payment, a nonce or a transfer; null for a charge. */
  readonly reference: Value<string> | null;
  /** Of the request that it belongs to, unless what it refers to tells that. */
  readonly traceId: Value<string> | null;
  /** Of an entry that is pending; any other one is posted at once. */
  readonly hold?: HoldColumns;
}

interface HoldColumns {
  /** By the database's clock; null for no lease. */
  readonly leaseSeconds: number | null;
  readonly paidFor: PaidFor | undefined;
  /** Of the process that delivers what the hold pays for; null for a job's. */
  readonly processId: number | null;
}

/**
 * The one way into the books, for a statement that moves the balances too: inserts an entry for each row.
 * @param rows what stands behind `from`
 */
export const insertTransfer = (
  { kind, debit, credit, amount, reference, traceId, hold }: Entry,
  rows: Fragment,
): Fragment => fragment`
  insert into transfer (kind, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id,
                        state, ended_at, lease_until, characters, rate_pico_usd, process_id)
  select ${kind}, ${debit}, ${credit}, ${amount}, ${reference}, ${traceId}::uuid,
         ${hold ? PENDING : POSTED}, now() + make_interval(secs => ${hold?.leaseSeconds}::double precision),
         ${hold?.paidFor?.characters}::integer, ${hold?.paidFor?.ratePicoUsd}::bigint, ${hold?.processId}::integer
  from ${rows}`;

const PENDING = fragment`'pending', null`;
const POSTED = fragment`'posted', now()`;
