import type { Config } from '../../config/config.ts';
import type { Database } from '../../db/database.ts';
import { faultOf, isDatabaseFault } from '../../db/database-errors.ts';
import {
  type AuditFinding,
  type AuditKind,
  type AuditProgress,
  audit,
  invariants,
  keepAuditResult,
} from '../../ledger/audit.ts';
import { newestSealable, parseSeal, type Seal, sealUpTo } from '../../ledger/seal.ts';
import { printable, tableLines } from '../../lib/printable.ts';
import { UsageError } from '../../lib/usage-error.ts';
import { Processor } from '../../payments/top-up/processor.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { shortenSecrets } from '../audit/account-names.ts';
import { auditPayments, hasPayments, PAYMENT_RULES } from '../audit/chain-payments.ts';
import type { OutsideAudit } from '../audit/outside.ts';
import { auditClawbacks, CLAWBACK_RULES } from '../audit/processor-clawbacks.ts';
import { auditPurchases, hasPurchases, PURCHASE_RULES } from '../audit/processor-purchases.ts';
import { type CommandContext, defineCommand } from './command.ts';
import { commandSettings, withDatabase } from './command-settings.ts';
import { readWholeConfig } from './whole-config.ts';

const EXIT_BROKEN = 1;
const EXIT_UNANSWERED = 2;
const USAGE = `speechgate audit
Checks the books and prints a line for each rule. Exits with 1 if a rule is broken, with 2 if a check could not finish.
  --external       also compares the books with the card processor and the chain
  --seal           prints a seal over all transfers, to keep elsewhere
  --verify-seal S  checks that the transfers in a seal are unchanged; can be repeated
  --secrets        prints whole ids of accounts and sessions; anyone who has one can spend`;
/** Ids in these columns are not secret. */
const PLAIN_COLUMN = /^purchase$|trace_id$/;

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
    const config = values.external
      ? readWholeConfig(settings, 'compare the books with processor and chain')
      : undefined;
    const look = { settings, subject: 'The books', maxConnections: config ? 4 : 1, exitCode: EXIT_UNANSWERED };
    return withDatabase(context, look, async (db) => {
      const report = new AuditReport(context.console, values.secrets);
      const findings = await audit(db, checking(context));
      report.add(
        invariants.map(({ rule }) => rule),
        { findings, unanswered: [] },
      );
      await keep(context, db, 'books', findings.length);
      if (config) await addOutside(context, db, config, report);
      for (const { upTo, hash } of seals) {
        report.addSeal(upTo, (await sealUpTo(db, upTo, progress(context, 'transfers'))).hash === hash);
      }
      report.noteShortened();
      if (values.seal) context.console.log(await newSeal(context, db));
      return report.exitCode;
    });
  },
});

/** Prints the result of each check, and determines the exit code. */
class AuditReport {
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
    if (this.#isBroken) return EXIT_BROKEN;
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
      `${holds ? 'holds ' : 'BROKEN'}  the transfers up to ${upTo} are unchanged since they were sealed`,
    );
    if (!holds) this.#isBroken = true;
  }

  noteShortened(): void {
    if (!this.#isShortened) return;
    this.#console.log('Ids of accounts and sessions are shortened. Use --secrets to print them whole.');
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

async function addOutside(context: CommandContext, db: Database, config: Config, report: AuditReport): Promise<void> {
  const audits = [
    [PURCHASE_RULES, await auditedPurchases(context, db, config, auditPurchases)],
    [CLAWBACK_RULES, await auditedPurchases(context, db, config, auditClawbacks)],
    [PAYMENT_RULES, await auditedPayments(context, db, config)],
  ] as const;
  for (const [rules, outside] of audits) report.add(rules, outside);
  const isAnswered = audits.every(([, { unanswered }]) => unanswered.length === 0);
  const broken = audits.reduce((sum, [, { findings }]) => sum + findings.length, 0);
  // An incomplete comparison that found nothing is no result.
  if (isAnswered || broken > 0) await keep(context, db, 'outside', broken);
}

/** Saves the result for the metrics. A read-only copy of the database can't save it, so a failure is only printed. */
async function keep({ console }: CommandContext, db: Database, kind: AuditKind, brokenRules: number): Promise<void> {
  try {
    await keepAuditResult(db, kind, brokenRules);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    console.error(`This audit's result was not saved for the metrics: ${printable(String(faultOf(error as Error)))}.`);
  }
}

async function newSeal(context: CommandContext, db: Database): Promise<string> {
  const upTo = await newestSealable(db);
  if (upTo === undefined) return 'There is no transfer to seal yet.';
  const { hash } = await sealUpTo(db, upTo, progress(context, 'transfers'));
  return `seal ${upTo} ${hash}`;
}

async function auditedPurchases(
  context: CommandContext,
  db: Database,
  { card }: Config,
  compare: typeof auditPurchases | typeof auditClawbacks,
): Promise<OutsideAudit> {
  if (card) return compare(db, new Processor(card.secretKey, card.apiBase), progress(context, 'at the processor'));
  return notAsked((await hasPurchases(db)) && 'there are purchases, but STRIPE_SECRET_KEY is unset.');
}

async function auditedPayments(context: CommandContext, db: Database, { x402 }: Config): Promise<OutsideAudit> {
  if (x402?.rpcUrls) {
    const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
    return auditPayments(db, chain, x402.asset, progress(context, 'payments')).finally(() => chain.close());
  }
  return notAsked((await hasPayments(db)) && 'there are payments in USDC, but X402_PAY_TO or X402_RPC_URL is unset.');
}

function notAsked(reason: string | false): OutsideAudit {
  return { findings: [], unanswered: reason ? [reason] : [] };
}

function checking({ stderr }: CommandContext): AuditProgress {
  let checked = 0;
  return (rule) => {
    const begunAt = performance.now();
    stderr.write(`${++checked} of ${invariants.length}: ${rule} … `);
    return () => stderr.write(`${((performance.now() - begunAt) / 1000).toFixed(1)} s\n`);
  };
}

function progress({ stderr }: CommandContext, of: string): (count: number | bigint) => void {
  return (count) => {
    if (stderr.isTTY) stderr.write(`\r${of}: ${count} \r`);
  };
}

function readSeal(text: string): Seal {
  const seal = parseSeal(text);
  if (seal) return seal;
  throw new UsageError(`--verify-seal takes <id>:<hash> as printed by --seal, not ${text}.`);
}
