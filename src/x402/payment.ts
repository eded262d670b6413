import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { TransferClaim } from './chain.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';

export type PaymentState = 'reserved' | 'settling' | 'settled' | 'refused' | 'unknown' | 'failed';

/** What a payment is for. */
export type PaymentPurpose = 'speech' | 'deposit';

/** A recorded payment by an on-chain authorization; db/migrations/0005_x402.sql has the states. */
export interface Payment {
  readonly id: bigint;
  readonly state: PaymentState;
  readonly purpose: PaymentPurpose;
  readonly requestHash: Buffer;
  /** Of the request that made it; null of releases that kept none. */
  readonly traceId: string | null;
  readonly fence: number;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly refusal: string | null;
  readonly receipt: string | null;
  /** The transaction whose depth is waited for. */
  readonly awaitedTransaction: string | null;
  /** A process is at it. */
  readonly isLeased: boolean;
  /** It was settled, and its replay window is not over. */
  readonly isReplayable: boolean;
}

/** What a payment is reserved for. */
export interface Reservation {
  readonly purpose: PaymentPurpose;
  readonly identifier: string;
  readonly requestHash: Buffer;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  /** Of the request. */
  readonly traceId: string;
}

/** What a payer has under way before one payment of his. */
export interface Exposure {
  /** Sum of the earlier authorizations whose transfer is still to come, in atomic units. */
  readonly unsettled: bigint;
  /** Earlier requests that are running. */
  readonly running: number;
  /** Those of them whose transfer may have landed, which is not recorded yet. */
  readonly settling: number;
  /** A settlement of his was refused or failed within the last hour. */
  readonly hasFailedLately: boolean;
}

/** For how long the exact repetition of a paid request gets the same answer (specification, "Limits"). */
export const REPLAY_WINDOW_SECONDS = 86_400;

/** How long a payment is its process's own without a sign of life, and how often it gives one (R26). */
const LEASE_SECONDS = 6;
const RENEW_EVERY_MS = 2_000;
/** The chain is asked about one payment at most this often. */
const CHECK_EVERY_SECONDS = 1;
/** How long after its failure a payment is looked for once more; and then, while that gives no answer, how often. */
const LAST_LOOK_SECONDS = 86_400;
const LOOK_AGAIN_SECONDS = 3_600;

const LEASE = sql`now() + make_interval(secs => ${sql.lit(LEASE_SECONDS)})`;

interface Row {
  id: bigint;
  state: PaymentState;
  request_hash: Buffer;
  trace_id: string | null;
  fence: number;
  payer: Address;
  nonce: Hex;
  pay_to: Address;
  amount_micro_usd: bigint;
  valid_before: bigint;
  head_block: bigint;
  refusal: string | null;
  receipt: string | null;
  purpose: PaymentPurpose;
  awaited_transaction: string | null;
  is_leased: boolean;
  is_replayable: boolean;
}

const COLUMNS = sql`
  id, state, request_hash, trace_id, fence, payer, nonce, pay_to, amount_micro_usd, valid_before, head_block, refusal, receipt,
  purpose, awaited_transaction,
  coalesce(lease_until >= now(), false) as is_leased,
  coalesce(settled_at > now() - make_interval(secs => ${sql.lit(REPLAY_WINDOW_SECONDS)}), false) as is_replayable`;

const toPayment = (row: Row): Payment => ({
  id: row.id,
  state: row.state,
  requestHash: row.request_hash,
  traceId: row.trace_id,
  fence: row.fence,
  claim: {
    payer: row.payer,
    nonce: row.nonce,
    payTo: row.pay_to,
    amount: row.amount_micro_usd,
    validBefore: row.valid_before,
  },
  headBlock: row.head_block,
  refusal: row.refusal,
  receipt: row.receipt,
  purpose: row.purpose,
  awaitedTransaction: row.awaited_transaction,
  isLeased: row.is_leased,
  isReplayable: row.is_replayable,
});

/**
 * The table of payments. Each transition is one statement that names the state it starts from; whoever gets the row
 * back owns the step.
 */
export class Payments {
  readonly #db: Database;
  readonly #asset: Asset;
  /** Of the network and asset that the chain can be asked about. */
  readonly #isOurs: RawBuilder<unknown>;

  constructor(db: Database, asset: Asset) {
    this.#db = db;
    this.#asset = asset;
    this.#isOurs = sql`(network = ${asset.network} and asset = ${asset.address.toLowerCase()})`;
  }

  async find(identifier: string): Promise<Payment | undefined> {
    return this.#one(sql`select ${COLUMNS} from x402_payment where identifier = ${identifier}`);
  }

  /**
   * Reserves identifier and authorization, for ever should a settle be sent. Undefined when one of them is taken.
   * Payments of one payer are numbered in the order in which they become visible, which `exposure` relies on.
   */
  async reserve(reservation: Reservation): Promise<Payment | undefined> {
    const { purpose, identifier, requestHash, claim, headBlock, traceId } = reservation;
    const { payer, nonce, payTo, amount, validBefore } = claim;
    const { network, address } = this.#asset;
    return this.#one(sql`
      with turn as materialized (select pg_advisory_xact_lock(hashtextextended(${payer}, 402)))
      insert into x402_payment (purpose, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                valid_before, head_block, trace_id, lease_until)
      select ${purpose}, ${identifier}, ${requestHash}, ${network}, ${address.toLowerCase()}, ${payer}, ${nonce}, ${payTo},
             ${amount}::bigint, ${validBefore}::bigint, ${headBlock}::bigint, ${traceId}::uuid,
             ${LEASE}
      from turn
      on conflict do nothing
      returning ${COLUMNS}`);
  }

  /** Whether a payment with this authorization is recorded, under whatever identifier (R22). */
  async isAuthorizationTaken({ payer, nonce }: TransferClaim): Promise<boolean> {
    const { network, address } = this.#asset;
    const { rows } = await sql<{ taken: boolean }>`
      select exists (
        select from x402_payment
        where network = ${network} and asset = ${address.toLowerCase()} and payer = ${payer} and nonce = ${nonce}
      ) as taken`.execute(this.#db);
    return rows[0]?.taken === true;
  }

  /** Takes over a reservation whose process is gone (R26); undefined when somebody else was first. */
  async takeOver({ id, fence }: Payment, headBlock: bigint): Promise<Payment | undefined> {
    return this.#one(sql`
      update x402_payment set fence = fence + 1, head_block = ${headBlock}, lease_until = ${LEASE}
      where id = ${id} and fence = ${fence} and state = 'reserved' and lease_until < now()
      returning ${COLUMNS}`);
  }

  /** Frees identifier and authorization; nothing happens once a settle may have been sent. */
  async release({ id, fence }: Payment): Promise<boolean> {
    const { numAffectedRows } = await sql`
      delete from x402_payment where id = ${id} and fence = ${fence} and state = 'reserved'`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /**
   * Records that a settle is about to be sent. False when the reservation was lost: then none may be sent. May be
   * repeated after a lost answer, since nobody else has this fence.
   */
  async beginSettling({ id, fence }: Payment): Promise<boolean> {
    const { numAffectedRows } = await sql`
      update x402_payment set state = 'settling', settling_at = now(), lease_until = ${LEASE}
      where id = ${id} and fence = ${fence} and state in ('reserved', 'settling')`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /** Records a refused settlement. The authorization stays blocked, since it may still land (R23). */
  async markRefused({ id }: Payment, reason: string): Promise<void> {
    await sql`
      update x402_payment set state = 'refused', refusal = ${reason}, failed_at = now(), lease_until = null
      where id = ${id} and state = 'settling'`.execute(this.#db);
  }

  /** Records that only the chain can tell what became of the settlement (R25). */
  async markUnknown({ id }: Payment): Promise<void> {
    await sql`
      update x402_payment set state = 'unknown', lease_until = null
      where id = ${id} and state = 'settling'`.execute(this.#db);
  }

  /** Records the transaction whose depth is waited for. */
  async markAwaited({ id }: Payment, transaction: string): Promise<void> {
    await sql`update x402_payment set awaited_transaction = ${transaction} where id = ${id}`.execute(this.#db);
  }

  /** Records that the authorization will not be used any more, as the chain has told; it is asked once more later. */
  async markFailed({ id }: Payment): Promise<boolean> {
    const { numAffectedRows } = await sql`
      update x402_payment
      set state = 'failed', failed_at = now(), next_look_at = now() + make_interval(secs => ${LAST_LOOK_SECONDS})
      where id = ${id} and state in ('unknown', 'refused')`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /** What the payer has under way before this payment of his (R21b). */
  async exposure({ id, claim }: Payment): Promise<Exposure> {
    const { rows } = await sql<{ unsettled: bigint; running: bigint; settling: bigint; failed: boolean }>`
      select coalesce(sum(amount_micro_usd) filter (where awaited_transaction is null), 0)::bigint as unsettled,
             count(*) filter (where state in ('reserved', 'settling')) as running,
             count(*) filter (where state = 'settling' and awaited_transaction is null) as settling,
             exists (
               select from x402_payment where payer = ${claim.payer} and failed_at > now() - interval '1 hour'
             ) as failed
      from x402_payment
      where payer = ${claim.payer} and id < ${id} and state in ('reserved', 'settling', 'refused', 'unknown')`.execute(
      this.#db,
    );
    const { unsettled = 0n, running = 0n, settling = 0n, failed = false } = rows[0] ?? {};
    return { unsettled, running: Number(running), settling: Number(settling), hasFailedLately: failed };
  }

  /**
   * Takes the turn to ask the chain about a payment whose end is in doubt; one that a dead process was settling becomes
   * unknown. Undefined when there is nothing to ask, or the chain was asked a moment ago.
   */
  async claimCheck({ id }: Payment): Promise<Payment | undefined> {
    return this.#one(sql`
      update x402_payment
      set checked_at = now(), lease_until = null, state = case state when 'settling' then 'unknown' else state end
      where id = ${id} and ${IN_DOUBT} and ${this.#isOurs}
        and (checked_at is null or checked_at < now() - make_interval(secs => ${CHECK_EVERY_SECONDS}))
      returning ${COLUMNS}`);
  }

  /** Likewise, of all payments in doubt that were not checked since, the one that has waited the longest. */
  async claimNextCheck(since: Date): Promise<Payment | undefined> {
    return this.#one(sql`
      update x402_payment
      set checked_at = now(), lease_until = null, state = case state when 'settling' then 'unknown' else state end
      where id = (
        select id from x402_payment
        where ${IN_DOUBT} and ${this.#isOurs} and (checked_at is null or checked_at < ${since})
        order by checked_at nulls first limit 1 for update skip locked
      )
      returning ${COLUMNS}`);
  }

  /**
   * Takes the turn to look once more for a payment that failed a day ago; the longest due one, undefined without any.
   * It is due again later, until the look is recorded as the last one.
   */
  async claimLastLook(): Promise<Payment | undefined> {
    return this.#one(sql`
      update x402_payment set next_look_at = now() + make_interval(secs => ${LOOK_AGAIN_SECONDS})
      where id = (
        select id from x402_payment where state = 'failed' and next_look_at < now() and ${this.#isOurs}
        order by next_look_at limit 1 for update skip locked
      )
      returning ${COLUMNS}`);
  }

  /** Records that a failed payment has been looked for once more, in vain: now it has failed for good. */
  async endLooking({ id }: Payment): Promise<void> {
    await sql`update x402_payment set next_look_at = null where id = ${id} and state = 'failed'`.execute(this.#db);
  }

  /** Reservations whose process is gone, at most so many. */
  async findAbandoned(limit: number): Promise<Payment[]> {
    return this.#all(sql`
      select ${COLUMNS} from x402_payment where state = 'reserved' and lease_until < now()
      order by id limit ${limit}`);
  }

  /** Payments whose audio nobody can ask for any more, at most so many. */
  async findAudioToDelete(limit: number): Promise<Payment[]> {
    return this.#all(sql`
      select ${COLUMNS} from x402_payment
      where state in ('settled', 'failed') and audio_deleted_at is null and purpose = 'speech'
        and (state = 'failed' or settled_at < now() - make_interval(secs => ${sql.lit(REPLAY_WINDOW_SECONDS)}))
      order by settled_at limit ${limit}`);
  }

  async markAudioDeleted({ id }: Payment): Promise<void> {
    await sql`update x402_payment set audio_deleted_at = now() where id = ${id}`.execute(this.#db);
  }

  /** The present time by the database's clock. */
  async now(): Promise<Date> {
    const { rows } = await sql<{ now: Date }>`select now() as now`.execute(this.#db);
    return (rows[0] as { now: Date }).now;
  }

  /** Keeps a payment's lease alive until the returned function is called. */
  keepLease({ id, fence }: Payment): () => void {
    const timer = setInterval(() => {
      // A renewal that fails is made up for by the next one; when all fail, the lease passes as it should.
      sql`update x402_payment set lease_until = ${LEASE}
          where id = ${id} and fence = ${fence} and state in ('reserved', 'settling')`
        .execute(this.#db)
        .catch(() => {});
    }, RENEW_EVERY_MS);
    return () => clearInterval(timer);
  }

  async #one(query: RawBuilder<unknown>): Promise<Payment | undefined> {
    return (await this.#all(query))[0];
  }

  async #all(query: RawBuilder<unknown>): Promise<Payment[]> {
    const { rows } = await (query as RawBuilder<Row>).execute(this.#db);
    return rows.map(toPayment);
  }
}

const IN_DOUBT = sql`(state in ('unknown', 'refused') or (state = 'settling' and lease_until < now()))`;
