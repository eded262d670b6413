import type { Database } from '../../db/database.ts';
import { faultOf, isDatabaseFault } from '../../db/database-errors.ts';
import { type AuditFinding, type AuditKind, keepAuditResult } from '../../ledger/audit.ts';
import { printable, tableLines } from '../../lib/printable.ts';
import { shortenSecrets } from '../audit/accounts.ts';
import type { OutsideAudit } from '../audit/outside.ts';
import { type CommandContext, EXIT_FAILED, EXIT_UNANSWERED } from './command.ts';

/** Ids in these columns are not secret. */
const PLAIN_COLUMN = /^purchase$|trace_id$/;

/** Prints the result of each check, and determines the exit code. */
export class AuditReport {
  readonly #console: CommandContext['console'];
  readonly #showsSecrets: boolean;
  #isBroken = false;
  #isAnswered = true;
  #isShortened = false;

  constructor(console: CommandContext['console'], showsSecrets: boolean) {
    this.#console = console;
    this.#showsSecrets = showsSecrets;
  }

  get exitCode(): number {
    if (this.#isBroken) return EXIT_FAILED;
    return this.#isAnswered ? 0 : EXIT_UNANSWERED;
  }

  add(rules: readonly string[], { findings, unanswered }: OutsideAudit): void {
    for (const rule of rules) {
      const finding = findings.find((candidate) => candidate.rule === rule);
      this.#console.log(`${finding ? 'BROKEN' : unanswered.length > 0 ? '?     ' : 'holds '}  ${rule}`);
      for (const line of tableLines(finding?.breaches.map((breach) => this.#shown(breach)) ?? [], '        ')) {
        this.#console.log(line);
      }
    }
    for (const reason of unanswered) this.#console.log(`        NOT CHECKED: ${printable(reason)}`);
    if (findings.length > 0) this.#isBroken = true;
    if (unanswered.length > 0) this.#isAnswered = false;
  }

  addSeal(upTo: bigint, holds: boolean): void {
    this.#console.log(
      `${holds ? 'holds ' : 'BROKEN'}  transfers up to ${upTo} are unchanged since their seal was made`,
    );
    if (!holds) this.#isBroken = true;
  }

  /** Says what to do about broken rules, and how to see whole ids. */
  end(): void {
    if (this.#isShortened) {
      this.#console.log('Ids of accounts and sessions are shortened. Use --secrets to print them whole.');
    }
    if (this.#isBroken) {
      this.#console.log(
        'BROKEN: data was changed or lost, or the service has a fault. Keep these rows, change nothing yet, and follow AuditBroken in docs/runbook.md.',
      );
    }
  }

  #shown(breach: AuditFinding['breaches'][number]): Record<string, unknown> {
    if (this.#showsSecrets) return breach;
    return Object.fromEntries(
      Object.entries(breach).map(([column, value]) => [column, this.#shortened(column, value)]),
    );
  }

  #shortened(column: string, value: unknown): unknown {
    if (PLAIN_COLUMN.test(column) || (value ?? null) === null || value instanceof Date) return value;
    const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
    const short = shortenSecrets(text);
    if (short !== text) this.#isShortened = true;
    return short;
  }
}

/** Saves the result for the metrics. A read-only copy of the database can't save it, so a failure is only printed. */
export async function keepResult(
  { console }: CommandContext,
  db: Database,
  kind: AuditKind,
  brokenRules: number,
): Promise<void> {
  try {
    await keepAuditResult(db, kind, brokenRules);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    console.error(
      `The audit is complete, but the metrics do not have its result: ${printable(String(faultOf(error as Error)))}. Nothing is wrong if this database is read-only. Otherwise fix the cause and run the audit again.`,
    );
  }
}

export function progress({ stderr }: CommandContext, of: string): (count: number | bigint) => void {
  return (count) => {
    if (stderr.isTTY) stderr.write(`\r${of}: ${count} \r`);
  };
}
