import type { ExpressionBuilder } from 'kysely';
import type { DB } from '../../../db/tables.ts';
import type { Database } from '../../db/database.ts';
import { secondsSince } from '../../db/expressions.ts';
import type { Chain, TransferClaim } from '../../payments/x402/chain.ts';
import type { PaymentPurpose, PaymentState } from '../../payments/x402/payment.ts';
import { RpcError } from '../../payments/x402/rpc.ts';
import { pagesById } from './outside.ts';

export interface ListedPayment {
  readonly id: string;
  readonly createdAt: Date;
  readonly ageSeconds: number;
  readonly state: PaymentState;
  readonly purpose: PaymentPurpose;
  readonly network: string;
  readonly asset: string;
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly transaction: string | null;
  readonly refusal: string | null;
  readonly checkedAt: Date | null;
  readonly traceId: string | null;
}

const BATCH = 200;

/** A failed payment is looked up once more, so its state is not final before that. */
const isInDoubt = (eb: ExpressionBuilder<DB, 'x402_payment'>) =>
  eb.or([
    eb('state', 'in', ['settling', 'unknown', 'refused']),
    eb.and([eb('state', '=', 'failed'), eb('next_look_at', 'is not', null)]),
  ]);

/** Payments without a clear outcome, in pages. */
export const listPayments = (db: Database): AsyncGenerator<ListedPayment[]> =>
  pagesById(async (after) => {
    const rows = await db
      .selectFrom('x402_payment')
      .select(['id', 'created_at as createdAt', 'state', 'purpose', 'network', 'asset', 'payer', 'nonce'])
      .select(['pay_to as payTo', 'amount_micro_usd as amount', 'valid_before as validBefore', 'refusal'])
      .select(['head_block as headBlock', 'checked_at as checkedAt', 'trace_id as traceId'])
      .select((eb) => [
        secondsSince(eb.fn.coalesce('settling_at', 'created_at')).as('ageSeconds'),
        eb.fn.coalesce('transaction_hash', 'awaited_transaction').as('transaction'),
      ])
      .where(isInDoubt)
      .where('id', '>', after)
      .orderBy('id')
      .limit(BATCH)
      .$narrowType<Pick<ListedPayment, 'state' | 'purpose'> & Pick<TransferClaim, 'payer' | 'nonce' | 'payTo'>>()
      .execute();
    return rows.map(({ payer, nonce, payTo, amount, validBefore, ...row }) => ({
      ...row,
      claim: { payer, nonce, payTo, amount, validBefore },
    }));
  });

export type ChainEvidence =
  | { readonly outcome: 'paid'; readonly transaction: string; readonly block: bigint; readonly isConfirmed: boolean }
  | { readonly outcome: 'used_otherwise' }
  | { readonly outcome: 'used' }
  | { readonly outcome: 'expired' }
  | { readonly outcome: 'expiring' }
  | { readonly outcome: 'usable' }
  | { readonly outcome: 'unanswered'; readonly reason: string };

/** Looks up an authorization as the reconcilers do (x402/resolver.ts), and changes nothing. */
export async function findEvidence(
  chain: Pick<Chain, 'find' | 'isSpent'>,
  { claim, headBlock, transaction }: Pick<ListedPayment, 'claim' | 'headBlock' | 'transaction'>,
): Promise<ChainEvidence> {
  try {
    const found = await chain.find(claim, headBlock, transaction);
    if (found.outcome === 'paid') {
      const { transaction: proved, block } = found.proof;
      return { outcome: 'paid', transaction: proved, block, isConfirmed: found.isConfirmed };
    }
    const isSpent = await chain.isSpent(claim);
    if (found.outcome === 'unused') return { outcome: isSpent ? 'used_otherwise' : 'expired' };
    if (isSpent) return { outcome: 'used' };
    return { outcome: Number(claim.validBefore) * 1000 < Date.now() ? 'expiring' : 'usable' };
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return { outcome: 'unanswered', reason: error.message };
  }
}
