import type { Database } from '../../db/database.ts';
import { audit } from '../../ledger/audit.ts';
import { newestSealable, parseSeal, type Seal, sealUpTo } from '../../ledger/seal.ts';
import { UsageError } from '../../lib/arguments.ts';
import { AuditReport, keepResult, progress } from './audit-report.ts';
import { type CommandContext, commandSettings, defineCommand, readWholeConfig, withDatabase } from './command.ts';

const USAGE = `speechgate admin audit
Checks the ledger and prints a line for each rule. Exits with 1 if a rule is broken, with 69 if a check could not finish.
  --external       also compares the ledger with the card processor and the chain
  --seal           prints a seal (a hash of all transfers) to keep elsewhere
  --verify-seal S  checks that the transfers in a seal are unchanged; can be repeated
  --secrets        prints whole ids of accounts and sessions. Keep them secret: they allow spending`;

export const auditCommand = defineCommand({
  usage: USAGE,
  options: {
    external: { type: 'boolean', default: false },
    seal: { type: 'boolean', default: false },
    'verify-seal': { type: 'string', multiple: true, default: [] },
    secrets: { type: 'boolean', default: false },
  },
  run: async (values, _words, context) => {
    const seals = values['verify-seal'].map(readSeal);
    const settings = await commandSettings(context);
    const external = values.external ? await loadExternal(settings) : undefined;
    const look = { settings, subject: 'The ledger', maxConnections: external ? 4 : 1 };
    return withDatabase(context, look, async (db) => {
      const report = new AuditReport(context.console, values.secrets);
      const findings = await audit(db, (rule, finding) =>
        report.add([rule], { findings: finding ? [finding] : [], unanswered: [] }),
      );
      await keepResult(context, db, 'books', findings.length);
      await external?.auditExternally(context, db, external.config, report);
      for (const { upTo, hash } of seals) {
        report.addSeal(upTo, (await sealUpTo(db, upTo, progress(context, 'transfers'))).hash === hash);
      }
      report.end();
      if (values.seal) context.console.log(await newSeal(context, db));
      return report.exitCode;
    });
  },
});

/** Imported only if it is used: an audit of the books alone starts three times as fast. */
async function loadExternal(settings: NodeJS.ProcessEnv) {
  const { auditExternally } = await import('./audit-external.ts');
  return {
    auditExternally,
    config: await readWholeConfig(settings, 'compare the ledger with the card processor and the chain'),
  };
}

async function newSeal(context: CommandContext, db: Database): Promise<string> {
  const upTo = await newestSealable(db);
  if (upTo === undefined) return 'No seal was made: the ledger has no final transfer yet. Make a seal later.';
  const { hash } = await sealUpTo(db, upTo, progress(context, 'transfers'));
  return `seal ${upTo}:${hash}`;
}

function readSeal(text: string): Seal {
  const seal = parseSeal(text);
  if (seal) return seal;
  throw new UsageError(`--verify-seal ${text} is not a seal. Give <id>:<hash> as --seal printed it.`);
}
