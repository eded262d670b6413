import type { CardAccount } from '../ledger/accounts.ts';
import { formatUsd } from '../lib/money.ts';

/** The contract's CreditAccount. */
export const creditAccountBody = ({ id, balanceMicroUsd }: CardAccount) => ({
  accountId: id,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
});
