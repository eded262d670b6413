import type { RawBuilder } from 'kysely';

export interface Invariant {
  readonly rule: string;
  readonly breaches: RawBuilder<Record<string, unknown>>;
}
