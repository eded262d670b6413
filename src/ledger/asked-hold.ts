import { type Fragment, fragment } from '../db/statement.ts';
import type { PaidFor } from './paid-for.ts';

/** A hold that is asked for, whoever's balance it is on. */
export interface AskedHold {
  readonly amountMicroUsd: bigint;
  /** What the amount is the price of; the service always tells it. */
  readonly paidFor?: PaidFor | undefined;
  /** Of the process that delivers what the hold pays for; null for a job's. */
  readonly processId?: number | null | undefined;
}

/** What all holds of one statement have in common. */
export interface HoldTerms {
  /**
   * How long each stands when nobody ends or renews it, by the database's clock; it must outlast the deadline of a
   * synthesis that isn't renewed. Null for a hold that is owned by a job and has no lease.
   */
  readonly leaseSeconds: number | null;
  /** A balance that somebody else is changing: waited for, or left alone, as if there were none. */
  readonly locked: 'wait' | 'skip';
}

/** The arguments of an `unnest` that has a row for each hold, whose columns are `HOLD_COLUMNS`. */
export const holdArrays = (asked: readonly AskedHold[]): Fragment => fragment`
  ${asked.map(({ amountMicroUsd }) => amountMicroUsd)}::bigint[],
  ${asked.map(({ paidFor }) => paidFor?.traceId)}::uuid[],
  ${asked.map(({ paidFor }) => paidFor?.characters)}::integer[],
  ${asked.map(({ paidFor }) => paidFor?.ratePicoUsd)}::bigint[],
  ${asked.map(({ processId }) => processId)}::integer[],
  ${asked.map(({ paidFor }) => paidFor?.model)}::text[]`;

export const HOLD_COLUMNS = fragment`amount, trace_id, characters, rate_pico_usd, process_id, model`;

/** Behind a `for update`. */
export const unlessLocked = ({ locked }: HoldTerms): Fragment => (locked === 'skip' ? SKIP : WAIT);

const SKIP = fragment`skip locked`;
const WAIT = fragment``;
