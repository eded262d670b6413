import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** The books alone, or the books held against the processor and the chain. */
export type AuditKind = 'books' | 'outside';

/** What the last audit of a kind came to. */
export interface AuditResult {
  readonly kind: AuditKind;
  readonly brokenRules: number;
  readonly ageSeconds: number;
}

/** Keeps what an audit came to, for whoever watches: the last one of each kind is kept. */
export async function keepAuditResult(db: Database, kind: AuditKind, brokenRules: number): Promise<void> {
  await sql`
    insert into audit_result (kind, broken_rules) values (${kind}, ${brokenRules})
    on conflict (kind) do update set broken_rules = excluded.broken_rules, ended_at = now()`.execute(db);
}

/** The last audit of each kind that was ever made on this database. */
export async function auditResults(db: Database): Promise<AuditResult[]> {
  const { rows } = await sql<{ kind: AuditKind; broken_rules: number; age_seconds: number }>`
    select kind, broken_rules, extract(epoch from now() - ended_at)::float8 as age_seconds
    from audit_result`.execute(db);
  return rows.map((row) => ({ kind: row.kind, brokenRules: row.broken_rules, ageSeconds: row.age_seconds }));
}
