import type { CreditsOperations } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { creditAccountBody } from './credit-account.ts';

/**
 * The credit account, keyed by its bearer id.
 * @param livemode that accounts are shown of; undefined for those of either mode
 */
export function creditsOperations(db: Database, livemode: boolean | undefined): CreditsOperations<OperationContext> {
  return {
    getCredits: async ({ params }) => {
      const account = await findCardAccount(db, params.accountId, { livemode });
      if (!account) {
        return failure('NOT_FOUND', 'There is no such credit account. A top-up makes one.', { field: 'accountId' });
      }
      return { status: 200, headers: { 'cache-control': PRIVATE }, body: creditAccountBody(account) };
    },
  };
}
