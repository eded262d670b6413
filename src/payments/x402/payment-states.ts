import { type ExpressionBuilder, type RawBuilder, type SqlBool, sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { DB } from '../../../db/tables.ts';
import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { now, secondsAgo, secondsFromNow, secondsSince, statementName } from '../../db/expressions.ts';
import { LEASE_HAS_ENDED, PAYMENT_COLUMNS, type Payment, REPLAY_WINDOW_SECONDS, toPayment } from './payment.ts';

const CHECK_EVERY_SECONDS = 1;
const LAST_LOOK_SECONDS = 86_400;
const LOOK_AGAIN_SECONDS = 3_600;

/** Written so that the planner can use the index of unfinished payments. */
const IN_DOUBT = sql<SqlBool>`state in ('unknown', 'refused', 'settling') and (state <> 'settling' or ${LEASE_HAS_ENDED})`;

/** A check in the future was made before the clock stepped back. */
const notCheckedSince = (time: Date | RawBuilder<Date>) =>
  sql<SqlBool>`(checked_at is null or checked_at < ${time} or checked_at > clock_timestamp())`;

const CHECK = (eb: ExpressionBuilder<DB, 'x402_payment'>) => ({
  checked_at: now,
  lease_until: null,
  state: eb.case('state').when('settling').then('unknown').else(eb.ref('state')).end(),
});

/**
 * Transitions of payments from `settling` on, except to `settled` (bookSettlements), and the turns to ask the chain.
 * Each is one statement that names the state it starts from: the process that gets the row back owns the step.
 */
export class PaymentStates {
  readonly #db: Database;
  readonly #asset: Asset;

  constructor(db: Database, asset: Asset) {
    this.#db = db;
    this.#asset = asset;
  }

  /** The authorization stays blocked, because it may still land (R23). */
  async markRefused({ id }: Payment, reason: string): Promise<void> {
    await this.#db
      .updateTable('x402_payment')
      .set({ state: 'refused', refusal: reason, failed_at: now, lease_until: null })
      .where('id', '=', id)
      .where('state', '=', 'settling')
      .modifyEnd(statementName('mark_refused'))
      .execute();
  }

  /** From here on only the chain decides the outcome (R25). */
  async markUnknown({ id }: Payment, transaction: string | undefined): Promise<void> {
    await this.#db
      .updateTable('x402_payment')
      .set({ state: 'unknown', lease_until: null, ...(transaction && { awaited_transaction: transaction }) })
      .where('id', '=', id)
      .where('state', '=', 'settling')
      .modifyEnd(statementName('mark_unknown'))
      .execute();
  }

  async markAwaited({ id }: Payment, transaction: string): Promise<void> {
    const payment = this.#db.updateTable('x402_payment').where('id', '=', id);
    await payment.set({ awaited_transaction: transaction }).execute();
  }

  async markFailed({ id }: Payment): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('x402_payment')
      .set({ state: 'failed', failed_at: now, next_look_at: secondsFromNow(LAST_LOOK_SECONDS) })
      .where('id', '=', id)
      .where('state', 'in', ['unknown', 'refused'])
      .executeTakeFirst();
    return numUpdatedRows === 1n;
  }

  /** Takes the turn to ask the chain about a payment in doubt. A dead process's `settling` becomes `unknown`. */
  async claimCheck({ id }: Payment): Promise<Payment | undefined> {
    const row = await this.#db
      .updateTable('x402_payment')
      .set(CHECK)
      .where('id', '=', id)
      .where('network', '=', this.#asset.network)
      .where('asset', '=', this.#asset.address.toLowerCase())
      .where(IN_DOUBT)
      .where(notCheckedSince(secondsAgo(CHECK_EVERY_SECONDS)))
      .returning(PAYMENT_COLUMNS)
      .executeTakeFirst();
    return row && toPayment(row);
  }

  /** Takes the payment that waited longest. */
  async claimNextCheck(since: Date): Promise<Payment | undefined> {
    const next = this.#ours()
      .where(IN_DOUBT)
      .where(notCheckedSince(since))
      .orderBy('checked_at', (order) => order.asc().nullsFirst());
    const row = await this.#db
      .updateTable('x402_payment')
      .set(CHECK)
      .where('id', '=', next.limit(sql.lit(1)).forUpdate().skipLocked())
      .where(notCheckedSince(since))
      .returning(PAYMENT_COLUMNS)
      .executeTakeFirst();
    return row && toPayment(row);
  }

  /** Postpones the next look at a failed payment, until `endLooking` makes this look the last one. */
  async claimLastLook(): Promise<Payment | undefined> {
    const next = this.#ours()
      .where('state', '=', sql.lit('failed'))
      .where('next_look_at', '<', now)
      .orderBy('next_look_at');
    const row = await this.#db
      .updateTable('x402_payment')
      .set({ next_look_at: secondsFromNow(LOOK_AGAIN_SECONDS) })
      .where('id', '=', next.limit(sql.lit(1)).forUpdate().skipLocked())
      .returning(PAYMENT_COLUMNS)
      .executeTakeFirst();
    return row && toPayment(row);
  }

  async endLooking({ id }: Payment): Promise<void> {
    const failed = this.#db.updateTable('x402_payment').where('id', '=', id).where('state', '=', 'failed');
    await failed.set({ next_look_at: null }).execute();
  }

  async now(): Promise<Date> {
    return (await this.#db.selectNoFrom(now.as('now')).executeTakeFirstOrThrow()).now;
  }

  #ours() {
    const { network, address } = this.#asset;
    const payments = this.#db.selectFrom('x402_payment').select('id');
    return payments.where('network', '=', network).where('asset', '=', address.toLowerCase());
  }
}

export interface PaymentsInDoubt {
  readonly count: number;
  readonly oldestSeconds: number;
}

/** Payments whose settlement was sent without a clear outcome. Refused ones do not count: they were hardly paid. */
export async function paymentsInDoubt(db: Database): Promise<PaymentsInDoubt> {
  const { count, oldest } = await db
    .selectFrom('x402_payment')
    .select(({ cast, fn, lit }) => [
      cast<number>(fn.countAll(), 'integer').as('count'),
      fn.coalesce(secondsSince(fn.min('settling_at')), lit(0)).as('oldest'),
    ])
    .where('state', 'in', [sql.lit('unknown'), sql.lit('settling')])
    .where((eb) => eb.or([eb('state', '<>', 'settling'), LEASE_HAS_ENDED]))
    .executeTakeFirstOrThrow();
  return { count, oldestSeconds: oldest };
}

/** Each owner of a reservation has its own fence, and so its own object. */
export const paymentAudioKey = ({ id, fence }: Pick<Payment, 'id' | 'fence'>): string => `${id}-${fence}`;

/** The first UUIDv7 of a minute since 1970. */
const firstIdOf = (minute: number): string => uuidv7({ msecs: minute * 60_000, seq: 0, random: new Uint8Array(16) });

/** Whether a payment that was made in that minute may still be replayed, or may still turn out to be paid. */
export async function isAudioNeeded(db: Database, minute: number): Promise<boolean> {
  const found = await db
    .selectFrom('x402_payment')
    .select(({ lit }) => lit(1).as('one'))
    .where('id', '>=', firstIdOf(minute))
    .where('id', '<', firstIdOf(minute + 1))
    .where('purpose', '=', 'speech')
    .where(({ or, and, eb }) =>
      or([
        eb('state', 'not in', ['settled', 'failed']),
        eb('settled_at', '>=', secondsAgo(REPLAY_WINDOW_SECONDS)),
        and([
          eb('state', '=', 'failed'),
          or([eb('next_look_at', 'is not', null), eb('failed_at', '>=', secondsAgo(LAST_LOOK_SECONDS))]),
        ]),
      ]),
    )
    .limit(1)
    .executeTakeFirst();
  return found !== undefined;
}
