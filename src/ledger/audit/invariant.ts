import type { RawBuilder } from 'kysely';

export interface Invariant {
  /** The rule, as a sentence that holds for a sound ledger. */
  readonly rule: string;
  /** Selects the rows that break the rule. */
  readonly breaches: RawBuilder<Record<string, unknown>>;
}
