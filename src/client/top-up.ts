import type { TopUpStatus } from '../contract/types.ts';
import type { Wire } from './api.ts';
import type { Service } from './payment-way.ts';
import { read } from './reading.ts';

/** @param options.account the account to add to */
export function topUpLink(
  baseUrl: string,
  { amountCents, account }: { readonly amountCents?: number; readonly account?: string },
): string {
  const url = new URL('/top-up', baseUrl);
  if (amountCents !== undefined) url.searchParams.set('amount', String(amountCents));
  if (account !== undefined) url.searchParams.set('account', account);
  return url.href;
}

/** Whether the account exists, and its balance: one that does not exist is an answer too. */
export async function readTopUpStatus(
  account: string,
  { api }: Service,
  signal: AbortSignal | undefined,
): Promise<Wire<TopUpStatus>> {
  return read(signal, { accountId: 'string', balanceMicroUsd: 'amount', status: 'string' }, async (signal) => {
    const { data, error, response } = await api.GET('/top-up/status', { params: { query: { account } }, signal });
    const isStatus = response.status === 404 && typeof error === 'object' && error !== null && 'status' in error;
    return isStatus ? { response, data: error as Wire<TopUpStatus> } : { response, data, error };
  });
}
