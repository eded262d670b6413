import type { Chain, TransferClaim } from '../x402/chain.ts';
import { RpcError } from '../x402/rpc.ts';

/** What the chain shows of a payment's authorization. */
export type ChainEvidence =
  /** It has made the exact transfer; confirmed when that is deep enough to count for a deposit. */
  | { readonly outcome: 'paid'; readonly transaction: string; readonly block: bigint; readonly isConfirmed: boolean }
  /** It was used or cancelled, and for certain not for this transfer. */
  | { readonly outcome: 'used_otherwise' }
  /** It was used or cancelled; by which transaction is not found, or that is not final. */
  | { readonly outcome: 'used' }
  /** It was not used, and can't be any more. */
  | { readonly outcome: 'expired' }
  /** It was not used, and its time is over, but not yet in a block that is final. */
  | { readonly outcome: 'expiring' }
  /** It was not used, and still can be. */
  | { readonly outcome: 'usable' }
  | { readonly outcome: 'unanswered'; readonly reason: string };

/** Asks the chain about an authorization, as the reconcilers do (x402/resolver.ts), and changes nothing. */
export async function findEvidence(
  chain: Pick<Chain, 'find' | 'isSpent'>,
  claim: TransferClaim,
  headBlock: bigint,
): Promise<ChainEvidence> {
  try {
    const found = await chain.find(claim, headBlock);
    if (found.outcome === 'paid') {
      const { transaction, block } = found.proof;
      return { outcome: 'paid', transaction, block, isConfirmed: found.isConfirmed };
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
