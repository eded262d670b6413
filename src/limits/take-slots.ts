import { type Fragment, fragment } from '../db/statement.ts';
import type { Scope, Slot } from './slot.ts';

/** How many slots a bucket has within any window's length of time. */
export interface WindowSize {
  readonly max: number;
  readonly windowSeconds: number;
}

/** What the attempts of one statement on one bucket came to. */
export interface SlotRow {
  readonly scope: Exclude<Scope, 'edge'>;
  /** Slots that they got: the first ones of them. */
  readonly granted: number;
  /** Slots of the bucket that are taken after them. */
  readonly taken: number;
  readonly reset_seconds: number;
}

/** What takeSlots returns beside `key` and `granted`. */
export const SLOT_COLUMNS = fragment`scope, taken, reset_seconds`;

/**
 * For a `with`: takes slots of buckets, as many as there are attempts and the window has left. The row's lock puts
 * statements on one bucket in order, and the clock is read under it. Returns rows with `key`, `granted` and SLOT_COLUMNS.
 * @param buckets rows with `key`, `scope` and `attempts`, for a `from`
 */
export function takeSlots(buckets: Fragment, { max, windowSeconds }: WindowSize): Fragment {
  const window = fragment`${windowSeconds}::double precision * interval '1 second'`;
  return fragment`
    insert into rate_window (key, scope, checked_at, allowed, granted, taken)
    select key, scope, at, true, granted, array_fill(at, array[granted])
    from ${buckets}, (select clock_timestamp() as at) clock, lateral (select least(attempts, ${max}::int) as granted) asked
    order by key
    on conflict (key) do update set (checked_at, allowed, granted, taken) = (
      select at, granted > 0, granted, live || array_fill(at, array[granted])
      from (
        select at, rate_window.taken[width_bucket(at - ${window}, rate_window.taken) + 1 :] as live
        from (select greatest(clock_timestamp(), rate_window.checked_at) as at) clock
      ) attempt, lateral (
        select least(excluded.granted, greatest(${max}::int - cardinality(live), 0)) as granted
      ) room
    )
    returning key, scope, granted, cardinality(taken) as taken,
              ceil(extract(epoch from taken[greatest(cardinality(taken) - ${max}::int, 0) + 1] + ${window} - checked_at))::int
                as reset_seconds`;
}

/** What one of the attempts is told. @param turn of it among those on the bucket, from 1 */
export function slotOf(row: SlotRow, turn: number, { max, windowSeconds }: WindowSize): Slot {
  const allowed = turn <= row.granted;
  const taken = allowed ? row.taken - row.granted + turn : row.taken;
  const remaining = Math.max(max - taken, 0);
  return { scope: row.scope, allowed, limit: max, windowSeconds, remaining, resetSeconds: row.reset_seconds };
}
