import { HTTPFacilitatorClient } from '@x402/core/http';
import type { PaymentRequirements } from '@x402/core/types';
import type { Test } from 'tap';
import type { Hex, LocalAccount } from 'viem';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, usesOfAuthorizations, wallet } from '../support/chain.ts';
import { requirements, testFacilitator } from '../support/facilitator.ts';

export const { skip, chain } = await testChain();
export const PRICE = 198n;

interface Scene {
  readonly facilitator: Awaited<ReturnType<typeof testFacilitator>>;
  readonly official: HTTPFacilitatorClient;
  readonly payer: LocalAccount;
  readonly payee: LocalAccount;
  readonly offer: PaymentRequirements;
  paid(): Promise<bigint>;
  /** Transactions that have used an authorization of the payer. */
  uses(): Promise<Hex[]>;
}

export async function scene(t: Test, options: Parameters<typeof testFacilitator>[2] = {}): Promise<Scene> {
  const facilitator = await testFacilitator(t, chain, options);
  const [payer, payee] = [await wallet(chain.client, 1000n), await wallet(chain.client)];
  return {
    facilitator,
    official: new HTTPFacilitatorClient({ url: facilitator.url, timeoutMs: 15_000 }),
    payer,
    payee,
    offer: requirements(chain, payee.address, PRICE),
    paid: () => usdcBalance(chain.client, payee.address),
    uses: () => usesOfAuthorizations(chain.client, payer.address),
  };
}

/** Sends without following redirects, and gives up after `timeoutMs`. */
export async function post(
  url: string,
  body: string,
  timeoutMs = 10_000,
): Promise<{ status: number; location: string | null; text: string }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    redirect: 'manual',
    signal: AbortSignal.timeout(timeoutMs),
  });
  return { status: response.status, location: response.headers.get('location'), text: await response.text() };
}
