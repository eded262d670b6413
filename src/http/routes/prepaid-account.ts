import type { GetPrepaidAccountRequest, GetPrepaidAccountResult } from '../../contract/operations.ts';
import { formatUsd } from '../../lib/money.ts';
import type { PrepaidBalance } from '../../payments/prepaid/prepaid-balance.ts';
import { signedBalanceRead } from '../../payments/prepaid/prepaid-credential.ts';
import type { OperationContext } from '../operations.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure } from '../structured-error.ts';
import { refuseForeignHeaders } from './flows.ts';
import { limitCredential, refusalFailure } from './refusals.ts';

export async function readPrepaidAccount(
  balances: PrepaidBalance,
  foreignHeaders: readonly string[],
  { params: { address }, headers }: GetPrepaidAccountRequest,
  context: OperationContext,
): Promise<GetPrepaidAccountResult> {
  const foreign = refuseForeignHeaders(context, foreignHeaders);
  if (foreign) return foreign;
  const shown = balances.credentialOf(headers);
  if (shown.outcome === 'refused') return refusalFailure(shown);
  const { credential } = shown;
  // Refuses a credential of another address before it reads the balance (R31).
  const reading = await balances.read(credential, signedBalanceRead(context), address);
  switch (reading.outcome) {
    case 'refused': {
      const limited = await limitCredential(reading, context);
      if (limited) return limited;
      return refusalFailure((await reading.expiryFirst?.()) ?? reading);
    }
    case 'unknown_account':
      return (
        (await context.rateLimits.takeForFailedCredential()) ??
        failure('NOT_FOUND', 'This address has no account. Deposit at POST /x402/deposit to create one.', {
          field: 'address',
        })
      );
    case 'read':
      context.rateLimits.uncountVerified();
      return {
        status: 200,
        headers: { 'cache-control': PRIVATE_CACHE },
        body: walletBody(credential.account, reading.balanceMicroUsd),
      };
  }
}

export const walletBody = (address: string, balanceMicroUsd: bigint) => ({
  address,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
  refundable: false as const,
});
