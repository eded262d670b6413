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

/** Does the work for each item, for at most so many at a time. After the first fault nothing more is begun. */
export async function eachOf<T>(
  items: readonly T[],
  concurrency: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let queue = [...items];
  const worker = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await work(item).catch((error) => {
        queue = [];
        throw error;
      });
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: concurrency }, worker));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
}
