import type { Database } from '../db/database.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { fragment, type Statement, statement } from '../db/statement.ts';
import type { PaidFor, SpokenBy } from '../ledger/paid-for.ts';
import type { TransferClaim } from './chain.ts';
import { type Exposure, type ExposureRow, toExposure } from './exposure.ts';
import type { Asset } from './network.ts';
import {
  LEASE_HAS_ENDED,
  LEASE_SECONDS,
  PAYMENT_COLUMNS,
  type Payment,
  type PaymentPurpose,
  type PaymentRow,
  readPayment,
  readPayments,
  toPayment,
} from './payment.ts';

/** What a payment is reserved for. */
export interface Reservation {
  readonly purpose: PaymentPurpose;
  readonly identifier: string;
  readonly requestHash: Buffer;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  /** Of the request. */
  readonly traceId: string;
  /** What is spoken for it; of a deposit undefined. */
  readonly paidFor?: Pick<PaidFor, 'model' | 'characters'> | undefined;
}

/** A payment that is about to be settled, and who spoke what it pays for; of a deposit nobody. */
interface Settling {
  readonly payment: Payment;
  readonly upstream: SpokenBy | undefined;
}

/** A payment that has just been reserved. */
export interface ReservedPayment {
  readonly payment: Payment;
  readonly exposure: Exposure;
}

/** How often a process gives a sign of life of its payments. */
const RENEW_EVERY_MS = 2_000;

const LEASE = fragment`now() + make_interval(secs => ${LEASE_SECONDS}::double precision)`;

/**
 * Payments until a settle is sent. Each transition is one statement that names the state it starts from; whoever gets
 * the row back owns the step.
 *
 * A reservation that a crash of the database has lost may have left its id to another payment, since the numbers that were
 * given out are lost with it; so each transition names the authorization's nonce too.
 */
export class Reservations {
  readonly #db: Database;
  readonly #asset: Asset;
  readonly #reserving = new GroupedStatement({
    run: (asked: readonly Reservation[]) => this.#reserve(asked),
    keyOf: ({ claim }) => claim.payer,
  });
  readonly #settlings = new GroupedStatement({
    run: (settlings: readonly Settling[]) => this.#beginSettling(settlings),
    keyOf: ({ payment }) => payment.id,
  });

  readonly #kept = new Set<Payment>();
  #renewal: NodeJS.Timeout | undefined;

  constructor(db: Database, asset: Asset) {
    this.#db = db;
    this.#asset = asset;
  }

  /**
   * Reserves identifier and authorization, for ever should a settle be sent. Undefined when one of them is taken: by what,
   * and what that means, payments/intake.ts finds out.
   * Payments of one payer are numbered in the order in which they become visible, and each sees those before it.
   *
   * It does not wait for the disk: a payment that a crash of the database loses can't begin to settle, so that nothing is
   * sent for it, and what makes it settle is written behind it.
   */
  reserve(reservation: Reservation): Promise<ReservedPayment | undefined> {
    return this.#reserving.execute(reservation);
  }

  /** Each is of another payer. */
  async #reserve(asked: readonly Reservation[]): Promise<(ReservedPayment | undefined)[]> {
    const { network, address } = this.#asset;
    const { rows } = await statement<PaymentRow & ExposureRow & { readonly identifier: string }>`
      with asked as materialized (
        select * from unnest(
          ${asked.map(({ purpose }) => purpose)}::text[], ${asked.map(({ identifier }) => identifier)}::text[],
          ${asked.map(({ requestHash }) => requestHash)}::bytea[], ${asked.map(({ claim }) => claim.payer)}::text[],
          ${asked.map(({ claim }) => claim.nonce)}::text[], ${asked.map(({ claim }) => claim.payTo)}::text[],
          ${asked.map(({ claim }) => claim.amount)}::bigint[], ${asked.map(({ claim }) => claim.validBefore)}::bigint[],
          ${asked.map(({ headBlock }) => headBlock)}::bigint[], ${asked.map(({ traceId }) => traceId)}::uuid[],
          ${asked.map(({ paidFor }) => paidFor?.model)}::text[], ${asked.map(({ paidFor }) => paidFor?.characters)}::integer[]
        ) as asked (purpose, identifier, request_hash, payer, nonce, pay_to, amount_micro_usd, valid_before, head_block,
                    trace_id, model, characters)
      ), turn as materialized (
        select payer, pg_advisory_xact_lock(lock) from (
          select payer, hashtextextended(payer, 402) as lock from asked
          where set_config('synchronous_commit', 'off', true) = 'off' order by lock
        ) payer
      ), reserved as (
        insert into x402_payment (purpose, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                  valid_before, head_block, trace_id, model, characters, lease_until)
        select purpose, identifier, request_hash, ${network}, ${address.toLowerCase()}, payer, nonce, pay_to,
               amount_micro_usd, valid_before, head_block, trace_id, model, characters, ${LEASE}
        from asked join turn using (payer)
        on conflict do nothing
        returning identifier, ${PAYMENT_COLUMNS}
      )
      select reserved.*, exposure.* from reserved, x402_exposure(reserved.payer, reserved.id) exposure`.execute(
      this.#db,
    );
    const reserved = new Map(rows.map((row) => [row.identifier, row]));
    return asked.map(({ identifier, claim }) => {
      const row = reserved.get(identifier);
      return row?.payer === claim.payer ? { payment: toPayment(row), exposure: toExposure(row) } : undefined;
    });
  }

  /** What the payer has under way before this payment of his (R21b). */
  async exposure({ id, claim }: Payment): Promise<Exposure> {
    const { rows } = await statement<ExposureRow>`select * from x402_exposure(${claim.payer}, ${id}::bigint)`.execute(
      this.#db,
    );
    return toExposure(rows[0] as ExposureRow);
  }

  /** Takes over a reservation whose process is gone (R26); undefined when somebody else was first. */
  async takeOver({ id, fence, claim }: Payment, headBlock: bigint): Promise<Payment | undefined> {
    return this.#one(statement`
      update x402_payment set fence = fence + 1, head_block = ${headBlock}, lease_until = ${LEASE}
      where id = ${id} and fence = ${fence} and nonce = ${claim.nonce} and state = 'reserved' and ${LEASE_HAS_ENDED}
      returning ${PAYMENT_COLUMNS}`);
  }

  /** Keeps a payment's lease alive until the returned function is called. */
  keepLease(payment: Payment): () => void {
    this.#kept.add(payment);
    // A renewal that fails is made up for by the next one; when all fail, the leases pass as they should.
    this.#renewal ??= setInterval(() => this.#renewLeases().catch(() => {}), RENEW_EVERY_MS);
    return () => {
      this.#kept.delete(payment);
      if (this.#kept.size > 0) return;
      clearInterval(this.#renewal);
      this.#renewal = undefined;
    };
  }

  /** In one statement for all of them, which waits for nobody who is at one of them. */
  async #renewLeases(): Promise<void> {
    const kept = [...this.#kept];
    await statement`
      update x402_payment set lease_until = ${LEASE}
      where id in (
        select x402_payment.id
        from unnest(${kept.map(({ id }) => id)}::bigint[], ${kept.map(({ fence }) => fence)}::integer[],
                    ${kept.map(({ claim }) => claim.nonce)}::text[]) as kept (id, fence, nonce)
          join x402_payment using (id, fence, nonce)
        where state in ('reserved', 'settling') for no key update of x402_payment skip locked
      )`.execute(this.#db);
  }

  /** Frees identifier and authorization; nothing happens once a settle may have been sent. */
  async release({ id, fence, claim }: Payment): Promise<boolean> {
    const { numAffectedRows } = await statement`
      delete from x402_payment
      where id = ${id} and fence = ${fence} and nonce = ${claim.nonce} and state = 'reserved'`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /**
   * Records that a settle is about to be sent. False when the reservation was lost: then none may be sent. May be
   * repeated after a lost answer, since nobody else has this fence.
   */
  beginSettling(payment: Payment, upstream?: SpokenBy): Promise<boolean> {
    return this.#settlings.execute({ payment, upstream });
  }

  async #beginSettling(settlings: readonly Settling[]): Promise<boolean[]> {
    const { rows } = await statement<{ id: bigint }>`
      update x402_payment set state = 'settling', settling_at = now(), lease_until = ${LEASE},
                              upstream = owned.upstream, cost_pico_usd = owned.cost_pico_usd
      from unnest(${settlings.map(({ payment }) => payment.id)}::bigint[],
                  ${settlings.map(({ payment }) => payment.fence)}::integer[],
                  ${settlings.map(({ payment }) => payment.claim.nonce)}::text[],
                  ${settlings.map(({ upstream }) => upstream?.name)}::text[],
                  ${settlings.map(({ upstream }) => upstream?.costPicoUsd)}::bigint[])
        as owned (id, fence, nonce, upstream, cost_pico_usd)
      where x402_payment.id = owned.id and x402_payment.fence = owned.fence and x402_payment.nonce = owned.nonce
        and state in ('reserved', 'settling')
      returning x402_payment.id`.execute(this.#db);
    const begun = new Set(rows.map(({ id }) => id));
    return settlings.map(({ payment }) => begun.has(payment.id));
  }

  /** Reservations whose process is gone, at most so many; those first that nobody has taken over lately. */
  async findAbandoned(limit: number): Promise<Payment[]> {
    return readPayments(
      this.#db,
      statement`
      select ${PAYMENT_COLUMNS} from x402_payment where state = 'reserved' and ${LEASE_HAS_ENDED}
      order by lease_until limit ${limit}`,
    );
  }

  #one(query: Statement<PaymentRow>): Promise<Payment | undefined> {
    return readPayment(this.#db, query);
  }
}
