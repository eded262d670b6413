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
import { endWith, readArguments } from '../../lib/arguments.ts';
import { printable, printTable } from '../../lib/printable.ts';
import { Processor } from '../../payments/top-up/processor.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { shortenSecrets } from '../audit/account-names.ts';
import { auditPayments, hasPayments, PAYMENT_RULES } from '../audit/chain-payments.ts';
import type { OutsideAudit } from '../audit/outside.ts';
import { auditClawbacks, CLAWBACK_RULES } from '../audit/processor-clawbacks.ts';
import { auditPurchases, hasPurchases, PURCHASE_RULES } from '../audit/processor-purchases.ts';
import { commandSettings, readWholeConfig, withDatabase } from './command-settings.ts';

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

const { values } = readArguments({
  usage: USAGE,
  options: {
    external: { type: 'boolean', default: false },
    seal: { type: 'boolean', default: false },
    'verify-seal': { type: 'string', multiple: true, default: [] },
    secrets: { type: 'boolean', default: false },
  },
});

let isShortened = false;
const seals = values['verify-seal'].map(readSeal);
const settings = await commandSettings();
const config = values.external ? readWholeConfig(settings, 'compare the books with processor and chain') : undefined;
const maxConnections = config ? 4 : 1;
await withDatabase({ settings, subject: 'The books', maxConnections, exitCode: EXIT_UNANSWERED }, run);

async function run(db: Database): Promise<void> {
  const findings = await audit(db, checking());
  let isBroken = print(
    invariants.map(({ rule }) => rule),
    findings,
  );
  await keep(db, 'books', findings.length);
  let isAnswered = true;
  if (config) {
    let brokenOutside = 0;
    for (const [rules, outside] of [
      [PURCHASE_RULES, await auditedPurchases(db, config, auditPurchases)],
      [CLAWBACK_RULES, await auditedPurchases(db, config, auditClawbacks)],
      [PAYMENT_RULES, await auditedPayments(db, config)],
    ] as const) {
      if (print(rules, outside.findings, outside.unanswered.length > 0)) isBroken = true;
      for (const reason of outside.unanswered) console.log(`        NOT CHECKED: ${printable(reason)}`);
      if (outside.unanswered.length > 0) isAnswered = false;
      brokenOutside += outside.findings.length;
    }
    // An incomplete comparison that found nothing is no result.
    if (isAnswered || brokenOutside > 0) await keep(db, 'outside', brokenOutside);
  }
  for (const { upTo, hash } of seals) {
    const holds = (await sealUpTo(db, upTo, progress('transfers'))).hash === hash;
    console.log(`${holds ? 'holds ' : 'BROKEN'}  the transfers up to ${upTo} are unchanged since they were sealed`);
    if (!holds) isBroken = true;
  }
  if (isShortened) console.log('Ids of accounts and sessions are shortened. Use --secrets to print them whole.');
  if (values.seal) await printSeal(db);
  process.exitCode = isBroken ? EXIT_BROKEN : isAnswered ? 0 : EXIT_UNANSWERED;
}

/** Saves the result for the metrics. A read-only copy of the database can't save it, so a failure is only printed. */
async function keep(db: Database, kind: AuditKind, brokenRules: number): Promise<void> {
  try {
    await keepAuditResult(db, kind, brokenRules);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    console.error(`This audit's result was not saved for the metrics: ${printable(String(faultOf(error as Error)))}.`);
  }
}

async function printSeal(db: Database): Promise<void> {
  const upTo = await newestSealable(db);
  if (upTo === undefined) return console.log('There is no transfer to seal yet.');
  const { hash } = await sealUpTo(db, upTo, progress('transfers'));
  console.log(`seal ${upTo} ${hash}`);
}

async function auditedPurchases(
  db: Database,
  { card }: Config,
  compare: typeof auditPurchases | typeof auditClawbacks,
): Promise<OutsideAudit> {
  if (card) return compare(db, new Processor(card.secretKey, card.apiBase), progress('at the processor'));
  return notAsked((await hasPurchases(db)) && 'there are purchases, but STRIPE_SECRET_KEY is unset.');
}

async function auditedPayments(db: Database, { x402 }: Config): Promise<OutsideAudit> {
  if (x402?.rpcUrls) {
    const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
    return auditPayments(db, chain, x402.asset, progress('payments')).finally(() => chain.close());
  }
  return notAsked((await hasPayments(db)) && 'there are payments in USDC, but X402_PAY_TO or X402_RPC_URL is unset.');
}

function notAsked(reason: string | false): OutsideAudit {
  return { findings: [], unanswered: reason ? [reason] : [] };
}

function print(rules: readonly string[], findings: readonly AuditFinding[], isPartial = false): boolean {
  for (const rule of rules) {
    const finding = findings.find((candidate) => candidate.rule === rule);
    console.log(`${finding ? 'BROKEN' : isPartial ? '?     ' : 'holds '}  ${rule}`);
    if (finding) printTable(finding.breaches.map(shown), '        ');
  }
  return findings.length > 0;
}

function shown(breach: AuditFinding['breaches'][number]): Record<string, unknown> {
  if (values.secrets) return breach;
  return Object.fromEntries(Object.entries(breach).map(([column, value]) => [column, shortened(column, value)]));
}

function shortened(column: string, value: unknown): unknown {
  if (PLAIN_COLUMN.test(column) || (value ?? null) === null || value instanceof Date) return value;
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  const short = shortenSecrets(text);
  if (short !== text) isShortened = true;
  return short;
}

function checking(): AuditProgress {
  let checked = 0;
  return (rule) => {
    const begunAt = performance.now();
    process.stderr.write(`${++checked} of ${invariants.length}: ${rule} … `);
    return () => process.stderr.write(`${((performance.now() - begunAt) / 1000).toFixed(1)} s\n`);
  };
}

function progress(of: string): (count: number | bigint) => void {
  return (count) => {
    if (process.stderr.isTTY) process.stderr.write(`\r${of}: ${count} \r`);
  };
}

function readSeal(text: string): Seal {
  const seal = parseSeal(text);
  if (seal) return seal;
  endWith(`--verify-seal takes <id>:<hash> as printed by --seal, not ${text}.`);
}
