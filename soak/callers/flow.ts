import type { World } from '../world/world.ts';
import type { Operation, Outcome } from './operation.ts';

/** What one caller does, again and again. */
export interface Customer {
  /** Milliseconds between two operations, at most. */
  readonly longestPauseMs: number;
  /** One operation. Never throws for what the service or a part of the world answers. */
  buy(operation: Operation): Promise<Outcome>;
}

/** What a customer is before the first operation: it buys credit or gets coins, by an operation of its own. */
export interface Opening {
  readonly customer: Customer;
  /** What it has bought for that, to be judged as any other operation. */
  readonly bought: readonly Outcome[];
}

export interface OpeningParts {
  readonly world: World;
  readonly operation: Operation;
  /** 32 bytes that no other caller of the run has. */
  readonly key: Buffer;
}

/** Makes a caller of one kind. */
export type Open = (parts: OpeningParts) => Promise<Opening>;
