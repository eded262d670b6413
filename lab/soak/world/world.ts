import type { Address } from 'viem';
import type { ChainClient } from '../../../src/sandbox/chain/chain-client.ts';
import type { Operations } from '../../../test/support/checkout.ts';
import type { TcpProxy } from '../../../test/support/tcp-proxy.ts';
import type { HttpLink } from '../links/http-link.ts';
import type { ChainPart } from './chain-part.ts';
import type { PostgresPart } from './postgres-part.ts';

/** A process that faults can kill, stop and freeze. */
export interface Part {
  readonly name: PartName;
  /** SIGKILL. Resolves after the exit. Durable data is on disk by then. */
  kill(): Promise<void>;
  /** SIGTERM. Resolves after the exit. @returns the exit code, or null if it was not running */
  stop(): Promise<number | null>;
  /** SIGSTOP. */
  freeze(): Promise<void>;
  /** SIGCONT. */
  thaw(): Promise<void>;
  /** Restarts it with its data and address, unless it runs. Resolves when it accepts requests. */
  start(): Promise<void>;
}

export const GATEWAYS = ['gateway one', 'gateway two'] as const;

export type GatewayName = (typeof GATEWAYS)[number];

/** Processes of the service itself. */
export type ServiceName = GatewayName | 'worker';

export type PartName = ServiceName | 'postgres' | 'chain' | 'facilitator' | 'checkout' | 'store' | 'upstream';

/** External services. Each call passes a link that can break it. */
export type OutsideName = 'upstream' | 'facilitator' | 'node' | 'checkout' | 'store';

export type Parts = Readonly<
  Record<Exclude<PartName, 'postgres' | 'chain'>, Part> & { postgres: PostgresPart; chain: ChainPart }
>;

/** What buyers and merchant do at the processor. */
export interface Processor extends Omit<Operations, 'endBankPayment'> {
  /** Pays on the hosted page, with retries until the checkout responds. @returns the URL of the page after payment */
  pay(checkoutUrl: string): Promise<string>;
  /** All sessions with their payments, refunds and disputes. */
  sessions(): Promise<readonly ProcessorSession[]>;
}

export interface ProcessorSession {
  readonly id: string;
  readonly isPaid: boolean;
  readonly amountCents: number;
  /** Refunds that succeeded or are pending, and disputes that are open or lost. */
  readonly takenBackCents: number;
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
  /** Keys and sizes in bytes of the objects in the audio store. */
  audioObjects(): Promise<ReadonlyMap<string, number>>;
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
