import { ServiceError } from './errors.ts';
import type { Balance, Service, Wallet } from './payment-way.ts';
import { read } from './reading.ts';
import { required } from './sign-payment.ts';
import { signPrepaid } from './sign-prepaid.ts';

/** What is left of a wallet's deposits, 0 when it made none. */
export async function prepaidBalance(wallet: Wallet, service: Service, signal?: AbortSignal): Promise<Balance> {
  const metadata = required(service.metadata);
  const { address } = wallet;
  const ask = async (isAnew: boolean): Promise<Balance> => {
    const payload = await (isAnew ? metadata.refresh(signal) : metadata.read(signal));
    const target = `/x402/accounts/${address}`;
    const { headers } = await signPrepaid(wallet, payload, { method: 'GET', target, body: '', maxMicroUsd: 0n });
    const { balanceMicroUsd } = await read(signal, { balanceMicroUsd: 'amount' }, (signal) =>
      service.api.GET('/x402/accounts/{address}', { params: { path: { address } }, headers, signal }),
    );
    return { flow: 'prepaid', account: address, balanceMicroUsd: BigInt(balanceMicroUsd) };
  };
  try {
    return await ask(false).catch((error) => {
      if (error instanceof ServiceError && error.status === 401) return ask(true);
      throw error;
    });
  } catch (error) {
    if (error instanceof ServiceError && error.status === 404) {
      return { flow: 'prepaid', account: address, balanceMicroUsd: 0n };
    }
    throw error;
  }
}
