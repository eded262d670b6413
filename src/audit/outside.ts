import type { AuditFinding } from '../ledger/audit.ts';

/** What the outside told about our books. */
export interface OutsideAudit {
  readonly findings: readonly AuditFinding[];
  /** How many rows and sessions were compared. */
  readonly compared: number;
  /** Why something could not be compared; empty when everything was. */
  readonly unanswered: readonly string[];
}

/** Told now and then how many rows and sessions were compared so far. */
export type Progress = (compared: number) => void;

/** Collects what breaks each rule, in the rules' order. */
export class Findings {
  readonly #breaches: Map<string, Record<string, unknown>[]>;

  constructor(rules: readonly string[]) {
    this.#breaches = new Map(rules.map((rule) => [rule, []]));
  }

  add(rule: string, breach: Record<string, unknown>): void {
    this.#breaches.get(rule)?.push(breach);
  }

  list(): AuditFinding[] {
    return [...this.#breaches]
      .filter(([, breaches]) => breaches.length > 0)
      .map(([rule, breaches]) => ({ rule, breaches }));
  }
}
