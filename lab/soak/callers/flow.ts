import type { Service } from '../world/world.ts';
import type { Operation, Outcome } from './operation.ts';

/** One caller, which repeats its operation. */
export interface Customer {
  readonly longestPauseMs: number;
  /** Runs one operation. Never throws because of a response. */
  buy(operation: Operation): Promise<Outcome>;
}

/** A caller that has bought credit or received coins. */
export interface Opening {
  readonly customer: Customer;
  /** Purchases made for that. The judge checks them like any other operation. */
  readonly bought: readonly Outcome[];
}

export interface OpeningParts {
  readonly world: Service;
  readonly operation: Operation;
  /** 32 bytes, unique to this caller. */
  readonly key: Buffer;
}

export type Open = (parts: OpeningParts) => Promise<Opening>;
