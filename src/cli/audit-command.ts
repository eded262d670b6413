import { shortenSecrets } from '../audit/account-names.ts';
import { auditPayments, hasPayments, PAYMENT_RULES } from '../audit/chain-payments.ts';
import type { OutsideAudit } from '../audit/outside.ts';
import { auditClawbacks, CLAWBACK_RULES } from '../audit/processor-clawbacks.ts';
import { auditPurchases, hasPurchases, PURCHASE_RULES } from '../audit/processor-purchases.ts';
import type { Database } from '../db/database.ts';
import { faultOf, isDatabaseFault } from '../db/database-errors.ts';
import { type AuditFinding, type AuditProgress, audit, invariants } from '../ledger/audit.ts';
import { type AuditKind, keepAuditResult } from '../ledger/audit-result.ts';
import { newestSealable, parseSeal, type Seal, sealUpTo } from '../ledger/seal.ts';
import type { Config } from '../settings/config.ts';
import { Processor } from '../top-up/processor.ts';
import { openPayments } from '../x402/open-payments.ts';
import { endWith, readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { look } from './look.ts';
import { printable } from './printable.ts';
import { tableLine } from './table-line.ts';
import { readWholeConfig } from './whole-config.ts';

const EXIT_BROKEN = 1;
/** Nothing is broken as far as could be asked. */
const EXIT_UNANSWERED = 2;
const USAGE = `speechgate audit
Checks the books, a line for each rule. Ends with 1 when one is broken, with 2 when not all could be asked.
  --external       holds them against processor and chain too
  --seal           prints a seal of all transfers, to be kept elsewhere
  --verify-seal S  whether the transfers are those that were sealed; may be repeated
  --secrets        shows ids of accounts and sessions whole: whoever has them can spend`;
/** Their ids are no account's. */
const PLAIN_COLUMN = /^purchase$|trace_id$/;

const { values } = readArguments(
  {
    options: {
      external: { type: 'boolean', default: false },
      seal: { type: 'boolean', default: false },
      'verify-seal': { type: 'string', multiple: true, default: [] },
      secrets: { type: 'boolean', default: false },
    },
  },
  USAGE,
);

let isShortened = false;
const seals = values['verify-seal'].map(readSeal);
const settings = await commandSettings();
const config = values.external ? readWholeConfig(settings, 'audit the outside') : undefined;
const maxConnections = config ? 4 : 1;
await look({ settings, subject: 'The books', maxConnections, exitCode: EXIT_UNANSWERED }, run);

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
      for (const reason of outside.unanswered) console.log(`        NOT ASKED: ${printable(reason)}`);
      if (outside.unanswered.length > 0) isAnswered = false;
      brokenOutside += outside.findings.length;
    }
    // What could not be asked is no result.
    if (isAnswered || brokenOutside > 0) await keep(db, 'outside', brokenOutside);
  }
  for (const { upTo, hash } of seals) {
    const holds = (await sealUpTo(db, upTo, progress('transfers'))).hash === hash;
    console.log(`${holds ? 'holds ' : 'BROKEN'}  the transfers up to ${upTo} are those that were sealed`);
    if (!holds) isBroken = true;
  }
  if (isShortened) console.log('Ids of accounts and sessions are shortened: --secrets shows them whole.');
  if (values.seal) await printSeal(db);
  process.exitCode = isBroken ? EXIT_BROKEN : isAnswered ? 0 : EXIT_UNANSWERED;
}

/** For the metrics; an audit of a copy that can't be written to is as good without. */
async function keep(db: Database, kind: AuditKind, brokenRules: number): Promise<void> {
  try {
    await keepAuditResult(db, kind, brokenRules);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    console.error(`The metrics will not tell of this audit: ${printable(String(faultOf(error as Error)))}.`);
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
  return notAsked((await hasPurchases(db)) && 'there are purchases, and STRIPE_SECRET_KEY is unset.');
}

async function auditedPayments(db: Database, { x402 }: Config): Promise<OutsideAudit> {
  if (x402?.rpcUrls) {
    const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
    return auditPayments(db, chain, x402.asset, progress('payments')).finally(() => chain.close());
  }
  return notAsked((await hasPayments(db)) && 'there are payments in USDC, and X402_PAY_TO or X402_RPC_URL is unset.');
}

function notAsked(reason: string | false): OutsideAudit {
  return { findings: [], compared: 0, unanswered: reason ? [reason] : [] };
}

/** Prints each rule, and what breaks it. Tells whether one is broken. */
function print(rules: readonly string[], findings: readonly AuditFinding[], isPartial = false): boolean {
  for (const rule of rules) {
    const finding = findings.find((candidate) => candidate.rule === rule);
    console.log(`${finding ? 'BROKEN' : isPartial ? '?     ' : 'holds '}  ${rule}`);
    if (finding) printBreaches(finding.breaches);
  }
  return findings.length > 0;
}

function printBreaches(breaches: AuditFinding['breaches']): void {
  const columns = [...new Set(breaches.flatMap((breach) => Object.keys(breach)))];
  const lines = [
    columns,
    ...breaches.map((breach) => columns.map((column) => printable(cellOf(column, breach[column])))),
  ];
  const widths = columns.map((_, index) => lines.reduce((most, line) => Math.max(most, line[index]?.length ?? 0), 0));
  for (const line of lines) console.log(`        ${tableLine(widths, line).trimEnd()}`);
}

function cellOf(column: string, value: unknown): string {
  const text = textOf(value);
  const shown = values.secrets || PLAIN_COLUMN.test(column) ? text : shortenSecrets(text);
  if (shown !== text) isShortened = true;
  return shown;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A line for each rule, with the seconds that it took. */
function checking(): AuditProgress {
  let checked = 0;
  return (rule) => {
    const begunAt = performance.now();
    process.stderr.write(`${++checked} of ${invariants.length}: ${rule} … `);
    return () => process.stderr.write(`${((performance.now() - begunAt) / 1000).toFixed(1)} s\n`);
  };
}

/** Counts on one line of a terminal, and nowhere else. */
function progress(of: string): (count: number | bigint) => void {
  return (count) => {
    if (process.stderr.isTTY) process.stderr.write(`\r${of}: ${count} \r`);
  };
}

function readSeal(text: string): Seal {
  const seal = parseSeal(text);
  if (seal) return seal;
  endWith(`--verify-seal takes <id>:<hash>, as --seal has printed them; it is ${text}.`);
}
