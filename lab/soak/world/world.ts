import type { Address } from 'viem';
import type { ChainClient } from '../../../src/sandbox/chain/chain-client.ts';
import type { Operations } from '../../../test/support/checkout.ts';
import type { TcpProxy } from '../../../test/support/tcp-proxy.ts';
import type { HttpLink } from '../links.ts';
import type { ChainPart, Part, PostgresPart } from './parts.ts';

const GATEWAYS = ['gateway one', 'gateway two'] as const;
export type GatewayName = (typeof GATEWAYS)[number];

/** Processes of the service itself. */
export const SERVICE = [...GATEWAYS, 'worker'] as const;
export type ServiceName = (typeof SERVICE)[number];

export type PartName = ServiceName | 'postgres' | 'chain' | 'facilitator' | 'checkout' | 'store' | 'upstream';

/** External services. Each call passes a link that can break it. */
export const OUTSIDE = ['upstream', 'facilitator', 'node', 'checkout', 'store'] as const;
export type OutsideName = (typeof OUTSIDE)[number];

type Parts = Readonly<
  Record<Exclude<PartName, 'postgres' | 'chain'>, Part> & { postgres: PostgresPart; chain: ChainPart }
>;

/** What buyers and merchant do at the processor. */
export interface Processor extends Omit<Operations, 'endBankPayment'> {
  /** Pays on the hosted page, with retries until the checkout responds. @returns the URL of the page after payment */
  pay(checkoutUrl: string): Promise<string>;
  /** By payment: refunds that succeeded or are pending, and disputes that are open or lost. */
  takenBack(): Promise<readonly { readonly payment_intent_id: string; readonly cents: number }[]>;
}

/** Where the next request goes. */
export type Origin = () => string;

/** The service as callers use it, and what is compared with them. */
export interface Service {
  /** Origins of the two gateways, in the order of `GATEWAYS`. Both know every operation. */
  readonly gateways: readonly [Origin, Origin];
  readonly payTo: Address;
  /** The chain without faulty links. Unavailable while the chain's process is down. */
  readonly chain: ChainClient;
  /** The database without faulty links, as its owner. */
  readonly databaseUrl: string;
  readonly processor: Processor;
  /** Settings for the service's commands, without faulty links. */
  readonly env: Readonly<Record<string, string>>;
}

/** The service and everything it needs, as local processes that faults can break. */
export interface World extends Service {
  readonly parts: Parts;
  readonly links: Readonly<Record<OutsideName, HttpLink>>;
  /** Each service process's connections to the database. */
  readonly databaseLinks: Readonly<Record<ServiceName, TcpProxy>>;
  /** Starts stopped parts and waits until all processes of the service are ready. */
  untilReady(): Promise<void>;
}
