import type { CreditsOperations } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { type CardAccount, findCardAccount } from '../../ledger/accounts.ts';
import { formatUsd } from '../../lib/money.ts';
import type { OperationContext } from '../operation-context.ts';
import { PRIVATE } from '../plugins/headers.ts';
import { failure } from '../structured-error.ts';

/** @param livemode of the accounts to show; undefined for both modes */
export const creditsOperations = (
  db: Database,
  livemode: boolean | undefined,
): CreditsOperations<OperationContext> => ({
  getCredits: async ({ params }) => {
    const account = await findCardAccount(db, params.accountId, { livemode });
    if (!account) {
      return failure('NOT_FOUND', 'This credit account does not exist. Buy credit at /top-up to create one.', {
        field: 'accountId',
      });
    }
    return { status: 200, headers: { 'cache-control': PRIVATE }, body: creditAccountBody(account) };
  },
});

export const creditAccountBody = ({ id, balanceMicroUsd }: Omit<CardAccount, 'isFrozen'>) => ({
  accountId: id,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
});
