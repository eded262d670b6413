import { operations } from '../../test/support/contract.ts';
import type { Judged } from './judge.ts';

export class Figures {
  /** Number of requests for each kind. */
  readonly requests = new Map<string, number>();
  /** Number of responses for each pair of operation and status. */
  readonly reached = new Map<string, number>();
  /** Served requests that the oracle says the contract forbids: one example for each fault. */
  readonly forbidden = new Map<string, string>();

  add(kind: string, judged: readonly Judged[], requests: number): void {
    add(this.requests, kind, requests);
    for (const { operation, status } of judged) add(this.reached, `${operation} ${status}`, 1);
  }

  get total(): number {
    return [...this.requests.values()].reduce((sum, count) => sum + count, 0);
  }

  get unreached(): string[] {
    const declared = operations.flatMap(({ operationId, responses }) =>
      Object.keys(responses).map((status) => `${operationId} ${status}`),
    );
    return declared.filter((pair) => !this.reached.has(pair));
  }
}

function add(counts: Map<string, number>, key: string, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}
