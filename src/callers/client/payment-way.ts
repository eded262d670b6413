import type { Api } from './api.ts';
import type { Catalog } from './catalog.ts';
import type { Deposit } from './deposit.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';
import type { Reader } from './retry-until-resolved.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import type { TrustedMetadata } from './trusted-metadata.ts';

/** A viem account, or any other signer of typed data with an address. */
export interface Wallet {
  readonly address: `0x${string}`;
  signTypedData(typedData: TypedData): Promise<`0x${string}`>;
}

/** What EIP-712 signs. */
export interface TypedData {
  readonly domain: {
    readonly name: string;
    readonly version: string;
    readonly chainId: number;
    readonly verifyingContract: `0x${string}`;
  };
  readonly types: Readonly<Record<string, readonly { readonly name: string; readonly type: string }[]>>;
  readonly primaryType: string;
  readonly message: Record<string, unknown>;
}

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
  readonly readers: Readers;
}

/** Reads the responses of each flow. */
interface Readers extends Readonly<Record<Flow, Reader<Speech>>> {
  readonly deposit: Reader<Deposit>;
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
