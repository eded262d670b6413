import type { LocalAccount } from 'viem';
import type { Api } from './api.ts';
import type { Catalog } from './catalog.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';
import type { SpeechOrder } from './speech.ts';
import type { SpeechTimeout } from './speech-timeout.ts';
import type { TrustedMetadata } from './trusted-metadata.ts';

/** An account of viem's, or anything else with an address that signs typed data. */
export type Wallet = Pick<LocalAccount, 'address' | 'signTypedData'>;

/** How a purchase is paid. */
export interface PaymentWay {
  readonly flow: Flow;
  /** That deposits and reads the prepaid balance; none with card credits. */
  readonly wallet?: Wallet;
  /**
   * What the order costs, and how it is signed. Everything that has to be trusted was checked by then, and nothing signed.
   * @throws UntrustedError
   */
  offer(order: SpeechOrder, terms: Terms): Promise<Offer>;
  /** None where the chain alone knows it. */
  balance?(service: Service, signal?: AbortSignal): Promise<Balance>;
}

/** The parts of a client that its ways to pay use. */
export interface Service {
  readonly api: Api;
  readonly baseUrl: string;
  readonly catalog: Catalog;
  /** Undefined without pinned keys. */
  readonly metadata: TrustedMetadata | undefined;
  readonly timeout: SpeechTimeout;
}

export interface Terms extends Service {
  readonly signal: AbortSignal | undefined;
  /** Of a card request: as a job, whose audio can be fetched again. */
  readonly isDurable: boolean;
}

/** What is about to be bought. */
export interface Offer {
  /** The most that it costs, in micro-USD. */
  readonly maxMicroUsd: bigint;
  /** Signs it, once. */
  sign(): Promise<PendingPurchase>;
}

/** What can be spent. */
export interface Balance {
  readonly flow: Flow;
  /** The account's id or address. */
  readonly account: string;
  readonly balanceMicroUsd: bigint;
}
