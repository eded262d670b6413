import type { CreditsOperations } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { type CardAccount, findCardAccount, lastCharges } from '../../ledger/accounts.ts';
import { formatUsd } from '../../lib/money.ts';
import { lastPurchases } from '../../payments/top-up/purchases.ts';
import type { OperationContext } from '../operations.ts';
import { pageResponse, type Site } from '../pages/page.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure } from '../structured-error.ts';
import { accountFormPage, accountPage } from './account-pages.ts';

/** @param livemode of the accounts to show; undefined for both modes */
export const creditsOperations = (
  db: Database,
  site: Site,
  livemode: boolean | undefined,
): CreditsOperations<OperationContext> => ({
  getCredits: async ({ params }) => {
    const account = await findCardAccount(db, params.accountId, { livemode });
    if (!account) {
      return failure('NOT_FOUND', 'This credit account does not exist. Check the id, or buy credit at /top-up.', {
        field: 'accountId',
      });
    }
    return { status: 200, headers: PRIVATE_ANSWER, body: creditAccountBody(account) };
  },

  showAccountForm: async () => pageResponse(200, PRIVATE_ANSWER, accountFormPage(site)),

  showAccount: async ({ body }) => {
    const typed = body?.accountId?.trim() ?? '';
    const account = await findCardAccount(db, typed, { livemode });
    if (!account) return pageResponse(404, PRIVATE_ANSWER, accountFormPage(site, typed));
    const [charges, purchases] = await Promise.all([lastCharges(db, account.id), lastPurchases(db, account.id)]);
    return pageResponse(200, PRIVATE_ANSWER, accountPage(site, account, { charges, purchases }));
  },
});

const PRIVATE_ANSWER = { 'cache-control': PRIVATE_CACHE };

export const creditAccountBody = ({ id, balanceMicroUsd }: Omit<CardAccount, 'isFrozen'>) => ({
  accountId: id,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
});
