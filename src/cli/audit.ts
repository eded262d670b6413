import { openDatabase } from '../db/database.ts';
import { audit, invariants } from '../ledger/audit.ts';
import { databaseUrl } from './database-url.ts';

const db = openDatabase(databaseUrl(), { maxConnections: 1, statementTimeoutMs: 0 });
const findings = await audit(db).finally(() => db.destroy());
for (const { rule } of invariants) {
  const finding = findings.find((candidate) => candidate.rule === rule);
  console.log(`${finding ? 'BROKEN' : 'holds '}  ${rule}`);
  if (finding) console.table(finding.breaches);
}
process.exitCode = findings.length > 0 ? 1 : 0;
