import { operations } from '../../test/support/contract.ts';
import type { Judged } from './judge.ts';

export class Figures {
  readonly #requests = new Map<string, number>();
  readonly #reached = new Map<string, number>();

  of =
    (kind: string) =>
    (judged: readonly Judged[], requests: number): void => {
      add(this.#requests, kind, requests);
      add(this.#requests, `${kind}, without an answer`, Math.max(0, requests - judged.length));
      for (const { operation, status } of judged) add(this.#reached, `${operation} ${status}`, 1);
    };

  /** Served requests that the oracle says the contract forbids: one example for each fault. */
  readonly forbidden = new Map<string, string>();

  get total(): number {
    return [...this.#requests].reduce((sum, [kind, count]) => (kind.includes(',') ? sum : sum + count), 0);
  }

  get requests(): Record<string, number> {
    return Object.fromEntries(this.#requests);
  }

  get statuses(): Record<string, number> {
    const statuses = new Map<string, number>();
    for (const [pair, count] of this.#reached) add(statuses, pair.split(' ')[1] ?? '', count);
    return Object.fromEntries(statuses);
  }

  /** Number of responses for each pair of operation and status. */
  get reached(): Record<string, number> {
    return Object.fromEntries([...this.#reached].sort());
  }

  get unreached(): string[] {
    const declared = operations.flatMap(({ operationId, responses }) =>
      Object.keys(responses).map((status) => `${operationId} ${status}`),
    );
    return declared.filter((pair) => !this.#reached.has(pair));
  }
}

function add(counts: Map<string, number>, key: string, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}
