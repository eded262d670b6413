import type { Address } from 'viem';
import type { ChainClient } from '../../src/sandbox/chain/chain-client.ts';
import type { Operations } from '../../src/sandbox/checkout/operations.ts';
import type { TcpProxy } from '../../test/support/tcp-proxy.ts';
import type { HttpLink } from '../links/http-link.ts';
import type { ChainPart } from './chain-part.ts';
import type { Clock } from './clock.ts';
import type { Disk } from './disk.ts';
import type { PostgresPart } from './postgres-part.ts';

/** A program of the world that can be killed, stopped and continued by itself. */
export interface Part {
  readonly name: PartName;
  /** SIGKILL, and waits for the end. What has to survive a power cut is on disk by then. */
  kill(): Promise<void>;
  /** SIGTERM, and waits for the end. Tells the exit code; null where it did not run. */
  stop(): Promise<number | null>;
  /** SIGSTOP. */
  freeze(): Promise<void>;
  /** SIGCONT. */
  thaw(): Promise<void>;
  /**
   * Starts it again on what it left, at its former address, and waits until it takes requests. Nothing where it runs.
   * @param env for this life alone
   */
  start(env?: Readonly<Record<string, string>>): Promise<void>;
  /** What it has printed, the last 64 KiB of it. */
  output(): string;
}

export const GATEWAYS = ['gateway one', 'gateway two'] as const;

export type GatewayName = (typeof GATEWAYS)[number];

/** The processes of the service itself. */
export type ServiceName = GatewayName | 'worker';

export type PartName = ServiceName | 'postgres' | 'chain' | 'facilitator' | 'checkout' | 'store' | 'upstream';

/** What the service calls. Each call goes through a place where it can be broken. */
export type OutsideName = 'upstream' | 'facilitator' | 'node' | 'checkout' | 'store';

/** A process of the service, which may end by itself. */
export interface ServicePart extends Part {
  readonly isRunning: boolean;
  /** It has stopped by SIGSTOP, whoever sent that. */
  readonly isFrozen: boolean;
  /** Resolves when it has ended, for whatever reason. */
  ended(): Promise<void>;
}

export type Parts = Readonly<
  Record<Exclude<PartName, 'postgres' | 'chain'>, ServicePart> & { postgres: PostgresPart; chain: ChainPart }
>;

/** What the buyers of card credits and the processor's merchant do, at the processor and not at the service. */
export interface Processor extends Operations {
  /** Presses Pay on the hosted page; tells where it leads back to. Repeated by itself until the checkout has answered. */
  pay(checkoutUrl: string): Promise<string>;
  /** All sessions with what was paid, refunded and disputed, as the processor has it, for the judge. */
  sessions(): Promise<readonly ProcessorSession[]>;
}

export interface ProcessorSession {
  readonly id: string;
  readonly isPaid: boolean;
  readonly amountCents: number;
  /** Refunds that succeeded or are pending, and disputes that are open or lost. */
  readonly takenBackCents: number;
}

/** The service and all that it stands on, as processes of this machine. */
export interface World {
  /** Origins of the two gateways, in the order of their names; a caller may ask either, and what one has begun the other one knows. */
  readonly gateways: readonly [string, string];
  readonly payTo: Address;
  /** To the chain itself, past whatever is broken between it and the service. Away while the chain's process is. */
  readonly chain: ChainClient;
  /** To the database itself, past whatever is broken in between, as its owner. */
  readonly databaseUrl: string;
  readonly processor: Processor;
  /** Keys and sizes in bytes of the objects in the audio store. */
  audioObjects(): Promise<ReadonlyMap<string, number>>;
  /** Settings of the gateways, for the commands of the service; past whatever is broken. */
  readonly env: Readonly<Record<string, string>>;
  readonly parts: Parts;
  readonly links: Readonly<Record<OutsideName, HttpLink>>;
  /** The connections of each process of the service to the database. */
  readonly databaseLinks: Readonly<Record<ServiceName, TcpProxy>>;
  /** That of the database; or why it can't be full. */
  readonly disk: Disk | string;
  /** That of gateway two; or why it can't step. */
  readonly clock: Clock | string;
  /** How many times the speech server was asked for speech. */
  spoken(): Promise<number>;
  /** Starts what does not run, and waits until each process of the service says that it is ready. */
  untilReady(): Promise<void>;
}
