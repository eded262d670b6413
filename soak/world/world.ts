import type { Address } from 'viem';
import type { ChainClient } from '../../src/sandbox/chain/chain-client.ts';
import type { Operations } from '../../src/sandbox/checkout/operations.ts';

/** A program of the world that can be killed, stopped and continued by itself. */
export interface Part {
  readonly name: PartName;
  /** SIGKILL, and waits for the end. What has to survive a power cut is on disk by then. */
  kill(): Promise<void>;
  /** SIGTERM, and waits for the end. Tells the exit code. */
  stop(): Promise<number | null>;
  /** SIGSTOP. */
  freeze(): void;
  /** SIGCONT. */
  thaw(): void;
  /** Starts it again on what it left, at its former address, and waits until it serves. Nothing where it runs. */
  start(): Promise<void>;
  /** What it has printed, the last 64 KiB of it. */
  output(): string;
}

export type PartName =
  | 'gateway one'
  | 'gateway two'
  | 'worker'
  | 'postgres'
  | 'chain'
  | 'facilitator'
  | 'checkout'
  | 'store'
  | 'upstream';

/** What the service calls. Each call goes through a place where it can be broken. */
export type OutsideName = 'upstream' | 'facilitator' | 'node' | 'checkout' | 'store';

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
  /** Origins of the two gateways; a caller may ask either, and what one has begun the other one knows. */
  readonly gateways: readonly [string, string];
  readonly payTo: Address;
  /** To the chain itself, past whatever is broken between it and the service. Away while the chain's process is. */
  readonly chain: ChainClient;
  /** To the database itself, past whatever is broken in between, as its owner. */
  readonly databaseUrl: string;
  readonly processor: Processor;
  /** Keys and sizes in bytes of the objects in the audio store. */
  audioObjects(): Promise<ReadonlyMap<string, number>>;
  /** Settings of the gateways, for the commands of the service. */
  readonly env: Readonly<Record<string, string>>;
  readonly parts: Readonly<Record<PartName, Part>>;
  /** How many times the speech server was asked for speech. */
  spoken(): Promise<number>;
  close(): Promise<void>;
}
