import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { asynchronousCommit, now, secondsFromNow, statementName, unnest } from '../../db/expressions.ts';
import { compiledOnce, GroupedStatement } from '../../db/hot-statements.ts';
import { LEASE_SECONDS, LeaseRenewer } from '../../db/lease.ts';
import {
  type CaptureRequest,
  ownedRows,
  ownedValues,
  type UpstreamUsage,
  type UsageRecord,
} from '../../ledger/hold.ts';
import type { TransferClaim } from './chain.ts';
import { LEASE_HAS_ENDED, PAYMENT_COLUMNS, type Payment, type PaymentPurpose, toPayment } from './payment.ts';

/** What a payer has pending before one payment, from the function x402_exposure. */
export interface Exposure {
  /** Sum of earlier authorizations whose transfer is still to come, in atomic units. */
  readonly unsettled: bigint;
  readonly running: bigint;
  /** How many of them may have landed without being recorded yet. */
  readonly settling: bigint;
  readonly failed: boolean;
}

export interface Reservation {
  readonly purpose: PaymentPurpose;
  readonly identifier: string;
  readonly requestHash: Buffer;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly traceId: string;
  readonly usage?: Pick<UsageRecord, 'model' | 'characters'> | undefined;
}

type ReservedPayment = { readonly payment: Payment; readonly exposure: Exposure };

const LEASE = secondsFromNow(LEASE_SECONDS);
const MAX_POSITION = 2n ** 63n - 1n;

/** Each transition is one statement that names its start state: the process that gets the row owns the step. */
export class Reservations {
  readonly #db: Database;
  readonly #asset: Asset;
  readonly #reserving = new GroupedStatement({
    run: (asked: readonly Reservation[]) => this.#reserve(asked),
    keyOf: ({ claim }) => claim.payer,
  });
  readonly #settlings = new GroupedStatement({
    run: (settlings: readonly CaptureRequest[]) => this.#beginSettling(settlings),
    keyOf: ({ id }) => id,
  });
  readonly #leases = new LeaseRenewer<Payment>({
    seconds: LEASE_SECONDS,
    keyOf: ({ id }) => id,
    renew: (payments) => this.#renew(payments),
  });

  constructor(db: Database, asset: Asset) {
    this.#db = db;
    this.#asset = asset;
  }

  /**
   * Reserves identifier and authorization, for ever if a settle is sent. Returns undefined if one of them is taken. The
   * commit does not wait for the disk: a payment lost in a crash can't begin to settle.
   */
  reserve(reservation: Reservation): Promise<ReservedPayment | undefined> {
    return this.#reserving.execute(reservation);
  }

  /** The lock per payer orders payments by visibility. Otherwise two would miss each other and look solvent (R21b). */
  async #reserve(asked: readonly Reservation[]): Promise<(ReservedPayment | undefined)[]> {
    const ids = asked.map(() => uuidv7());
    const rows = await reserveAll(this.#db, valuesOf(ids, asked, this.#asset));
    const reserved = new Map(rows.map((row) => [row.id, row]));
    return asked.map((reservation, index) => {
      const id = ids[index] as string;
      const exposure = reserved.get(id);
      return exposure && { payment: this.#begun(id, reservation), exposure };
    });
  }

  #begun(id: string, { purpose, requestHash, traceId, claim, headBlock }: Reservation): Payment {
    return {
      id,
      state: 'reserved',
      purpose,
      requestHash,
      traceId,
      fence: 1,
      network: this.#asset.network,
      claim,
      headBlock,
      refusal: null,
      receipt: null,
      awaitedTransaction: null,
      isLeased: true,
      isReplayable: false,
    };
  }

  /** @param id of a reserved payment; otherwise all payments of the payer count */
  async exposure({ id, claim }: Pick<Payment, 'claim'> & { readonly id?: string }): Promise<Exposure> {
    const before = id && this.#db.selectFrom('x402_payment').select('position').where('id', '=', id);
    const position = before ?? MAX_POSITION;
    const exposure = sql<Exposure>`x402_exposure(${claim.payer}, ${position})`.as('exposure');
    return this.#db.selectFrom(exposure).selectAll().executeTakeFirstOrThrow();
  }

  /** Takes over a reservation of a dead process (R26). Returns undefined if another process was faster. */
  async takeOver({ id, fence }: Payment, headBlock: bigint): Promise<Payment | undefined> {
    const row = await this.#db
      .updateTable('x402_payment')
      .set((eb) => ({ fence: eb('fence', '+', 1), head_block: headBlock, lease_until: LEASE }))
      .where('id', '=', id)
      .where('fence', '=', fence)
      .where('state', '=', 'reserved')
      .where(LEASE_HAS_ENDED)
      .returning(PAYMENT_COLUMNS)
      .executeTakeFirst();
    return row && toPayment(row);
  }

  keepLease(payment: Payment): () => void {
    return this.#leases.keep(payment, performance.now());
  }

  /** Skips payments that are locked. None is reported lost: the fence decides who owns a payment. */
  async #renew(payments: readonly Payment[]): Promise<ReadonlySet<string>> {
    const ids = payments.map(({ id }) => id);
    const kept = unnest('kept', {
      id: ['uuid', ids],
      fence: ['integer', payments.map(({ fence }) => fence)],
    });
    const unlocked = this.#db
      .selectFrom('x402_payment')
      .innerJoin(kept, (join) =>
        join.onRef('kept.id', '=', 'x402_payment.id').onRef('kept.fence', '=', 'x402_payment.fence'),
      )
      .select('x402_payment.id')
      .where('state', 'in', ['reserved', 'settling'])
      .forNoKeyUpdate('x402_payment')
      .skipLocked();
    const renewed = this.#db.updateTable('x402_payment').set({ lease_until: LEASE });
    await renewed.where('id', 'in', unlocked).execute();
    return new Set(ids);
  }

  /** Frees identifier and authorization. Does nothing once a settle may have been sent. */
  async release({ id, fence }: Payment): Promise<boolean> {
    const { numDeletedRows } = await this.#db
      .deleteFrom('x402_payment')
      .where('id', '=', id)
      .where('fence', '=', fence)
      .where('state', '=', 'reserved')
      .modifyEnd(statementName('release'))
      .executeTakeFirst();
    return numDeletedRows === 1n;
  }

  /**
   * Records that a settle is about to be sent (R21). If false, the reservation is lost and none may be sent. May be
   * repeated if the database's answer was lost.
   */
  beginSettling({ id, fence }: Payment, upstream?: UpstreamUsage): Promise<boolean> {
    return this.#settlings.execute({ id, fence, upstream });
  }

  async #beginSettling(settlings: readonly CaptureRequest[]): Promise<boolean[]> {
    const rows = await settleAll(this.#db, ownedValues(settlings));
    const begun = new Set(rows.map(({ id }) => id));
    return settlings.map(({ id }) => begun.has(id));
  }

  /** A batch of reservations of dead processes, in the order in which their leases expired. */
  async findAbandoned(limit: number): Promise<Payment[]> {
    const rows = await this.#db
      .selectFrom('x402_payment')
      .select(PAYMENT_COLUMNS)
      .where('state', '=', sql.lit('reserved'))
      .where(LEASE_HAS_ENDED)
      .orderBy('lease_until')
      .limit(limit)
      .execute();
    return rows.map(toPayment);
  }
}

type ReservationValues = ReturnType<typeof valuesOf>;

const valuesOf = (ids: readonly string[], asked: readonly Reservation[], { network, address }: Asset) => ({
  network,
  asset: address.toLowerCase(),
  ids,
  purposes: asked.map(({ purpose }) => purpose),
  identifiers: asked.map(({ identifier }) => identifier),
  requestHashes: asked.map(({ requestHash }) => requestHash),
  payers: asked.map(({ claim }) => claim.payer),
  nonces: asked.map(({ claim }) => claim.nonce),
  payees: asked.map(({ claim }) => claim.payTo),
  amounts: asked.map(({ claim }) => claim.amount),
  ends: asked.map(({ claim }) => claim.validBefore),
  headBlocks: asked.map(({ headBlock }) => headBlock),
  traceIds: asked.map(({ traceId }) => traceId),
  models: asked.map(({ usage }) => usage?.model),
  characters: asked.map(({ usage }) => usage?.characters),
});

const reserveAll = compiledOnce(
  (_db, of: ReservationValues) => sql<Exposure & { readonly id: string }>`
  /* reserve */ with asked as materialized (
    select * from unnest(
      ${of.ids}::uuid[], ${of.purposes}::text[], ${of.identifiers}::text[], ${of.requestHashes}::bytea[], ${of.payers}::text[],
      ${of.nonces}::text[], ${of.payees}::text[], ${of.amounts}::bigint[], ${of.ends}::bigint[], ${of.headBlocks}::bigint[],
      ${of.traceIds}::uuid[], ${of.models}::text[], ${of.characters}::integer[]
    ) as asked (id, purpose, identifier, request_hash, payer, nonce, pay_to, amount_micro_usd, valid_before, head_block,
                trace_id, model, characters)
  ), turn as materialized (
    select payer, pg_advisory_xact_lock(lock) from (
      select payer, hashtextextended(payer, 402) as lock from asked
      where ${asynchronousCommit} = 'off' order by lock
    ) payer
  ), reserved as (
    insert into x402_payment (id, purpose, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                              valid_before, head_block, trace_id, model, characters, lease_until)
    select id, purpose, identifier, request_hash, ${of.network}, ${of.asset}, payer, nonce, pay_to,
           amount_micro_usd, valid_before, head_block, trace_id, model, characters, ${LEASE}
    from asked join turn using (payer)
    on conflict do nothing
    returning id, payer, position
  )
  select reserved.id, exposure.* from reserved, x402_exposure(payer, position) exposure`,
);

const settleAll = compiledOnce((db, values: ReturnType<typeof ownedValues>) =>
  db
    .updateTable('x402_payment')
    .from(ownedRows(values))
    .set((eb) => ({
      state: 'settling',
      settling_at: now,
      lease_until: LEASE,
      upstream: eb.ref('owned.upstream'),
      cost_pico_usd: eb.ref('owned.cost'),
    }))
    .whereRef('x402_payment.id', '=', 'owned.id')
    .whereRef('x402_payment.fence', '=', 'owned.fence')
    .where('state', 'in', ['reserved', 'settling'])
    .returning('x402_payment.id')
    .modifyEnd(statementName('settle')),
);
