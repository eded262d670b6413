import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { localSetting, now, secondsSince } from '../db/expressions.ts';
import { readSqlFiles } from '../db/sql-files.ts';

interface Invariant {
  /** Of its file in db/audit/. */
  readonly name: string;
  readonly rule: string;
  readonly breaches: RawBuilder<Record<string, unknown>>;
}

/** Each file has the rule as its first comment, and a statement that selects what breaks it. */
export async function readInvariants(): Promise<Invariant[]> {
  const files = await readSqlFiles('audit');
  return files.map(({ name, text }) => ({
    name,
    rule: text.slice('-- '.length, text.indexOf('\n')),
    breaches: sql.raw(text),
  }));
}

const MOST_BREACHES = 1000;

export interface AuditFinding {
  readonly rule: string;
  readonly breaches: readonly Record<string, unknown>[];
}

/**
 * Checks every invariant on one snapshot of the database. A finding has the first rows that break its rule.
 * @param onChecked called for each rule, in order
 */
export async function audit(
  db: Database,
  onChecked: (rule: string, finding: AuditFinding | undefined) => void = () => {},
): Promise<AuditFinding[]> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (snapshot) => {
      // All rows are needed, so the planner must not optimize for the first ones.
      const settings = [
        localSetting('cursor_tuple_fraction', '1').as('fraction'),
        localSetting('work_mem', '64MB').as('memory'),
      ];
      await snapshot.selectNoFrom(settings).execute();
      const findings: AuditFinding[] = [];
      for (const { rule, breaches } of await readInvariants()) {
        const rows = await firstOf(snapshot, breaches);
        const finding = rows.length > 0 ? { rule, breaches: rows } : undefined;
        if (finding) findings.push(finding);
        onChecked(rule, finding);
      }
      return findings;
    });
}

async function firstOf(snapshot: Database, breaches: Invariant['breaches']): Promise<Record<string, unknown>[]> {
  await sql`declare breach no scroll cursor for ${breaches}`.execute(snapshot);
  const { rows } = await sql<Record<string, unknown>>`fetch ${sql.lit(MOST_BREACHES)} from breach`.execute(snapshot);
  await sql`close breach`.execute(snapshot);
  return rows;
}

export type AuditKind = 'books' | 'outside';

export interface AuditResult {
  readonly kind: AuditKind;
  readonly brokenRules: number;
  readonly ageSeconds: number;
}

export async function keepAuditResult(db: Database, kind: AuditKind, brokenRules: number): Promise<void> {
  await db
    .insertInto('audit_result')
    .values({ kind, broken_rules: brokenRules })
    .onConflict((oc) => oc.column('kind').doUpdateSet({ broken_rules: brokenRules, ended_at: now }))
    .execute();
}

export async function auditResults(db: Database): Promise<AuditResult[]> {
  const rows = await db
    .selectFrom('audit_result')
    .select((eb) => ['kind', 'broken_rules', secondsSince(eb.ref('ended_at')).as('ageSeconds')])
    .execute();
  return rows.map((row) => ({
    kind: row.kind as AuditKind,
    brokenRules: row.broken_rules,
    ageSeconds: row.ageSeconds,
  }));
}
