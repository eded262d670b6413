import { operations } from '../support/contract.ts';
import type { Judged } from './judge.ts';

/** What was sent and what came back. */
export class Figures {
  readonly #requests = new Map<string, number>();
  readonly #reached = new Map<string, number>();

  /** Counts what a conversation of this kind has sent and got. */
  of =
    (kind: string) =>
    (judged: readonly Judged[], requests: number): void => {
      add(this.#requests, kind, requests);
      add(this.#requests, `${kind}, without an answer`, Math.max(0, requests - judged.length));
      for (const { operation, status } of judged) add(this.#reached, `${operation} ${status}`, 1);
    };

  /** Requests that were served although the foreign check says that the contract forbids them: an example by what is wrong. */
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

  /** How often each pair of operation and status came, of those that came. */
  get reached(): Record<string, number> {
    return Object.fromEntries([...this.#reached].sort());
  }

  /** The pairs that the contract declares, and that never came. */
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
