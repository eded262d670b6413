import type { GetPrepaidAccountRequest, GetPrepaidAccountResult } from '../contract/operations.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { formatUsd } from '../lib/money.ts';
import type { PrepaidBalance } from '../payments/prepaid-balance.ts';
import { signedBalanceRead } from '../x402/prepaid-credential.ts';
import { limitCredential } from './credential-limit.ts';
import { refuseForeignHeaders } from './flows.ts';
import { refusalFailure } from './refusals.ts';

export interface PrepaidAccountParts {
  readonly balances: PrepaidBalance;
  /** Of the other flows (R36). */
  readonly foreignHeaders: readonly string[];
}

/** Shows a wallet's balance to who signs for it. */
export async function readPrepaidAccount(
  { balances, foreignHeaders }: PrepaidAccountParts,
  { params: { address }, headers }: GetPrepaidAccountRequest,
  context: OperationContext,
): Promise<GetPrepaidAccountResult> {
  const foreign = refuseForeignHeaders(context, foreignHeaders);
  if (foreign) return foreign;
  const shown = balances.credentialOf(headers);
  if (shown.outcome === 'refused') return refusalFailure(shown);
  const { credential } = shown;
  const reading = await balances.read(credential, signedBalanceRead(context), address);
  switch (reading.outcome) {
    case 'refused': {
      const limited = await limitCredential(reading, context);
      if (limited) return limited;
      return refusalFailure((await reading.explain?.()) ?? reading);
    }
    case 'unknown_account':
      return (
        (await context.admission.credentialFailed()) ??
        failure('NOT_FOUND', 'This address has never deposited. POST /x402/deposit makes its account.', {
          field: 'address',
        })
      );
    case 'read':
      context.admission.credentialVerified();
      return {
        status: 200,
        headers: { 'cache-control': PRIVATE },
        body: walletBody(credential.account, reading.balanceMicroUsd),
      };
  }
}

/** @param address in lower case */
export const walletBody = (address: string, balanceMicroUsd: bigint) => ({
  address,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
  refundable: false as const,
});
