import type { LocalAccount } from 'viem';
import type { Api } from './api.ts';
import type { Catalog } from './catalog.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';
import type { SpeechOrder } from './speech.ts';
import type { TrustedMetadata } from './trusted-metadata.ts';

/** A viem account, or any other signer of typed data with an address. */
export type Wallet = Pick<LocalAccount, 'address' | 'signTypedData'>;

export interface PaymentWay {
  readonly flow: Flow;
  /** Undefined with card credits. */
  readonly wallet?: Wallet;
  /** Checks price and payee before anything is signed. @throws UntrustedError */
  offer(order: SpeechOrder, terms: Terms): Promise<Offer>;
  /** Undefined for direct x402, whose balance is on the chain. */
  balance?(service: Service, signal?: AbortSignal): Promise<Balance>;
}

export interface Service {
  readonly api: Api;
  readonly baseUrl: string;
  readonly catalog: Catalog;
  readonly metadata: TrustedMetadata | undefined;
}

export interface Terms extends Service {
  readonly signal: AbortSignal | undefined;
  readonly isDurable: boolean;
}

export interface Offer {
  readonly maxMicroUsd: bigint;
  sign(): Promise<PendingPurchase>;
}

export interface Balance {
  readonly flow: Flow;
  readonly account: string;
  readonly balanceMicroUsd: bigint;
}
