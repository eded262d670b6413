import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { TransferClaim } from '../x402/chain.ts';
import type { Hex } from '../x402/envelope.ts';
import type { PaymentPurpose, PaymentState } from '../x402/payment.ts';

/** A payment in USDC as operators see it. */
export interface ListedPayment {
  readonly id: bigint;
  readonly createdAt: Date;
  /** Since its settlement began, or since it was reserved where none has; by the database's clock. */
  readonly ageSeconds: number;
  readonly state: PaymentState;
  readonly purpose: PaymentPurpose;
  readonly network: string;
  /** In lower case. */
  readonly asset: string;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  /** Where it is proved, or where the facilitator says that it is. */
  readonly transaction: string | null;
  readonly refusal: string | null;
  /** When the chain was asked last. */
  readonly checkedAt: Date | null;
  readonly traceId: string | null;
  /** What became of it is not certain yet. */
  readonly isInDoubt: boolean;
}

/** Which payments are listed: those in doubt, those made since then, or all. */
export type Which = 'in doubt' | 'all' | { readonly since: Date };

/** Payments that are read at a time. */
const BATCH = 200;
/** A failed payment is looked for once more; until then the verdict is not final. */
const IN_DOUBT = sql`(state in ('settling', 'unknown', 'refused') or state = 'failed' and next_look_at is not null)`;

interface Row extends Omit<ListedPayment, 'claim'> {
  readonly payer: TransferClaim['payer'];
  readonly nonce: Hex;
  readonly payTo: TransferClaim['payTo'];
  readonly amount: bigint;
  readonly validBefore: bigint;
}

/** Lists payments in the order in which they were made, some at a time. Only reads. */
export async function* listPayments(db: Database, which: Which): AsyncGenerator<ListedPayment[]> {
  for (let after = 0n; ; ) {
    const { rows } = await sql<Row>`
      select id, created_at as "createdAt", state, purpose, network, asset, payer, nonce, pay_to as "payTo",
             amount_micro_usd as amount, valid_before as "validBefore", head_block as "headBlock", refusal,
             coalesce(transaction_hash, awaited_transaction) as transaction, checked_at as "checkedAt",
             trace_id as "traceId", ${IN_DOUBT} as "isInDoubt",
             extract(epoch from now() - coalesce(settling_at, created_at))::double precision as "ageSeconds"
      from x402_payment where id > ${after} and ${condition(which)} order by id limit ${BATCH}`.execute(db);
    const last = rows.at(-1);
    if (!last) return;
    yield rows.map(({ payer, nonce, payTo, amount, validBefore, ...row }) => ({
      ...row,
      claim: { payer, nonce, payTo, amount, validBefore },
    }));
    after = last.id;
  }
}

function condition(which: Which): RawBuilder<unknown> {
  if (which === 'in doubt') return IN_DOUBT;
  return which === 'all' ? sql`true` : sql`created_at >= ${which.since}`;
}
