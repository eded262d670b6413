import type { Hex } from 'viem';
import { PaymentRequiredError } from '../../client/errors.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';
import { EXIT } from './exit-codes.ts';
import { CommandError } from './failure.ts';
import type { Caller } from './open-caller.ts';
import type { Settings } from './settings.ts';

const NO_WALLET =
  'There is no wallet for this service. Run speechgate connect --wallet create, or name one that you have.';
const NO_TRUST =
  "The service's keys are not known. Get them from its operator, then run speechgate connect --trust FILE or --fingerprint TEXT.";

/**
 * Ends the command where there is nothing to pay with.
 * @throws CommandError, UsageError
 */
export function assertCanPay({ flow, settings, client }: Caller): void {
  if (flow === 'card') {
    if (settings.account !== undefined) return;
    const message = 'There is no credit account for this service yet. Buy credit with: speechgate top-up';
    const topUpUrl = client.topUpLink({});
    throw new CommandError({
      code: 'NO_ACCOUNT',
      exit: EXIT.noMoney,
      message: `${message} (or ${topUpUrl})`,
      topUpUrl,
    });
  }
  assertWallet(settings);
  assertTrust(settings);
}

/** The private key of the service's wallet. @throws UsageError where there is none */
export function assertWallet({ walletKey }: Settings): Hex {
  if (walletKey === undefined) throw new UsageError(NO_WALLET);
  return walletKey;
}

/** @throws UsageError where no key of the service is pinned */
export function assertTrust({ trust }: Settings): void {
  if (trust.length === 0) throw new UsageError(NO_TRUST);
}

/** The purchase, whose refusal for want of money tells how to get some. */
export async function paid<T>({ flow, settings, client }: Caller, purchase: Promise<T>): Promise<T> {
  try {
    return await purchase;
  } catch (error) {
    if (!(error instanceof PaymentRequiredError)) throw error;
    const { code, status, details, traceId, missingMicroUsd } = error;
    const missing = missingMicroUsd === null ? '' : ` ${formatUsd(missingMicroUsd)} USD are missing.`;
    const topUpUrl =
      flow === 'card'
        ? (error.topUpUrl ?? client.topUpLink(settings.account === undefined ? {} : { account: settings.account }))
        : null;
    const wayOut = {
      card: `Buy credit with: speechgate top-up (or ${topUpUrl})`,
      prepaid: 'Deposit USDC of the wallet with: speechgate deposit 1.00',
      direct: 'Send USDC to the wallet; speechgate connect shows its address.',
    }[flow];
    const message = `There is not enough money.${missing} ${wayOut}`;
    throw new CommandError({ code, exit: EXIT.noMoney, message, status, details, traceId, missingMicroUsd, topUpUrl });
  }
}
