import type { Database } from '../db/database.ts';
import { type Fragment, fragment, type Statement, statement } from '../db/statement.ts';
import type { Asset } from './network.ts';
import { LEASE_HAS_ENDED, PAYMENT_COLUMNS, type Payment, type PaymentRow, readPayment } from './payment.ts';

/** The chain is asked about one payment at most this often. */
const CHECK_EVERY_SECONDS = 1;
/** How long after its failure a payment is looked for once more; and then, while that gives no answer, how often. */
export const LAST_LOOK_SECONDS = 86_400;
const LOOK_AGAIN_SECONDS = 3_600;

/** Put so that the planner sees that the index of unfinished payments has them all. */
const IN_DOUBT = fragment`(state in ('unknown', 'refused', 'settling') and (state <> 'settling' or ${LEASE_HAS_ENDED}))`;

/**
 * Payments from `settling` on, except that they are settled (bookSettlement): what the facilitator's answer makes of
 * them, and whose turn it is to ask the chain. Each transition is one statement that names the state it starts from.
 */
export class PaymentOutcomes {
  readonly #db: Database;
  /** Of the network and asset that the chain can be asked about. */
  readonly #isOurs: Fragment;

  constructor(db: Database, asset: Asset) {
    this.#db = db;
    this.#isOurs = fragment`(network = ${asset.network} and asset = ${asset.address.toLowerCase()})`;
  }

  /** Records a refused settlement. The authorization stays blocked, since it may still land (R23). */
  async markRefused({ id }: Payment, reason: string): Promise<void> {
    await statement`
      update x402_payment set state = 'refused', refusal = ${reason}, failed_at = now(), lease_until = null
      where id = ${id} and state = 'settling'`.execute(this.#db);
  }

  /**
   * Records that only the chain can tell what became of the settlement (R25).
   * @param transaction that may hold the transfer, where one is known
   */
  async markUnknown({ id }: Payment, transaction: string | undefined): Promise<void> {
    await statement`
      update x402_payment set state = 'unknown', lease_until = null,
                              awaited_transaction = coalesce(${transaction}, awaited_transaction)
      where id = ${id} and state = 'settling'`.execute(this.#db);
  }

  /** Records the transaction whose depth is waited for. */
  async markAwaited({ id }: Payment, transaction: string): Promise<void> {
    await statement`update x402_payment set awaited_transaction = ${transaction} where id = ${id}`.execute(this.#db);
  }

  /** Records that the authorization will not be used any more, as the chain has told; it is asked once more later. */
  async markFailed({ id }: Payment): Promise<boolean> {
    const { numAffectedRows } = await statement`
      update x402_payment
      set state = 'failed', failed_at = now(), next_look_at = now() + make_interval(secs => ${LAST_LOOK_SECONDS}::double precision)
      where id = ${id} and state in ('unknown', 'refused')`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /**
   * Takes the turn to ask the chain about a payment whose end is in doubt; one that a dead process was settling becomes
   * unknown. Undefined when there is nothing to ask, or the chain was asked a moment ago.
   */
  async claimCheck({ id }: Payment): Promise<Payment | undefined> {
    return this.#one(statement`
      update x402_payment
      set checked_at = now(), lease_until = null, state = case state when 'settling' then 'unknown' else state end
      where id = ${id} and ${IN_DOUBT} and ${this.#isOurs}
        and (checked_at is null or checked_at > clock_timestamp()
             or checked_at < now() - make_interval(secs => ${CHECK_EVERY_SECONDS}::double precision))
      returning ${PAYMENT_COLUMNS}`);
  }

  /**
   * Likewise, of all payments in doubt that were not checked since, the one that has waited the longest. One whose check
   * lies ahead was checked before the database's clock stepped back.
   */
  async claimNextCheck(since: Date): Promise<Payment | undefined> {
    return this.#one(statement`
      update x402_payment
      set checked_at = now(), lease_until = null, state = case state when 'settling' then 'unknown' else state end
      where id = (
        select id from x402_payment
        where ${IN_DOUBT} and ${this.#isOurs}
          and (checked_at is null or checked_at < ${since} or checked_at > clock_timestamp())
        order by checked_at nulls first limit 1 for update skip locked
      ) and (checked_at is null or checked_at < ${since} or checked_at > clock_timestamp())
      returning ${PAYMENT_COLUMNS}`);
  }

  /**
   * Takes the turn to look once more for a payment that failed a day ago; the longest due one, undefined without any.
   * It is due again later, until the look is recorded as the last one.
   */
  async claimLastLook(): Promise<Payment | undefined> {
    return this.#one(statement`
      update x402_payment set next_look_at = now() + make_interval(secs => ${LOOK_AGAIN_SECONDS}::double precision)
      where id = (
        select id from x402_payment where state = 'failed' and next_look_at < now() and ${this.#isOurs}
        order by next_look_at limit 1 for update skip locked
      )
      returning ${PAYMENT_COLUMNS}`);
  }

  /** Records that a failed payment has been looked for once more, in vain: now it has failed for good. */
  async endLooking({ id }: Payment): Promise<void> {
    await statement`update x402_payment set next_look_at = null where id = ${id} and state = 'failed'`.execute(
      this.#db,
    );
  }

  /** The present time by the database's clock. */
  async now(): Promise<Date> {
    const { rows } = await statement<{ now: Date }>`select now() as now`.execute(this.#db);
    return (rows[0] as { now: Date }).now;
  }

  #one(query: Statement<PaymentRow>): Promise<Payment | undefined> {
    return readPayment(this.#db, query);
  }
}
