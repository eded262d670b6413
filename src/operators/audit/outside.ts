import { NIL } from 'uuid';
import type { AuditFinding } from '../../ledger/audit.ts';
import { ProcessorError } from '../../payments/top-up/processor-call.ts';
import { RpcError } from '../../payments/x402/rpc.ts';

export interface OutsideAudit {
  readonly findings: readonly AuditFinding[];
  readonly unanswered: readonly string[];
}

export type Progress = (compared: number) => void;

export interface Comparison {
  add(rule: string, breach: Record<string, unknown>): void;
  count(rows: number): void;
}

/** True if the card processor or the chain's node did not answer as it should, so that nothing is known to be broken. */
export const isOutsideError = (error: unknown): error is ProcessorError | RpcError =>
  error instanceof ProcessorError || error instanceof RpcError;

/** Stops at the first error of processor or node. @param work returns reasons why something was not compared */
export async function auditOutside(
  rules: readonly string[],
  progress: Progress,
  work: (comparison: Comparison) => Promise<readonly string[]>,
): Promise<OutsideAudit> {
  const breachesOf = new Map<string, Record<string, unknown>[]>(rules.map((rule) => [rule, []]));
  let compared = 0;
  const comparison: Comparison = {
    add: (rule, breach) => breachesOf.get(rule)?.push(breach),
    count: (rows) => {
      compared += rows;
      progress(compared);
    },
  };
  const unanswered = await work(comparison).catch((error) => {
    if (!isOutsideError(error)) throw error;
    return [error.message];
  });
  const findings = [...breachesOf].map(([rule, breaches]) => ({ rule, breaches }));
  return { findings: findings.filter(({ breaches }) => breaches.length > 0), unanswered };
}

/** Reads a table in pages, ordered by its ids. */
export async function* pagesById<Row extends { readonly id: string }>(
  read: (after: string) => Promise<Row[]>,
): AsyncGenerator<Row[]> {
  for (let rows = await read(NIL); rows.length > 0; rows = await read(rows.at(-1)?.id ?? NIL)) yield rows;
}

/** Reads a list of the processor in pages. */
export async function* pagesOfList<Entry extends { readonly id: string }>(
  read: (after: string | undefined) => Promise<{ readonly entries: readonly Entry[]; readonly hasMore: boolean }>,
): AsyncGenerator<readonly Entry[]> {
  let page = await read(undefined);
  yield page.entries;
  while (page.hasMore) {
    page = await read(page.entries.at(-1)?.id);
    yield page.entries;
  }
}
