import type { Database } from '../db/database.ts';
import { readMoment } from '../lib/moment.ts';
import { formatUsd } from '../lib/money.ts';
import { compareChain } from '../report/chain-money.ts';
import type { Comparison } from '../report/difference.ts';
import { liabilityAt, moneyOf } from '../report/money.ts';
import { type Period, readEnd } from '../report/period.ts';
import { compareProcessor } from '../report/processor-money.ts';
import { GROUPS, type Group, type Sales, salesOf, totalOf } from '../report/sales.ts';
import type { Config } from '../settings/config.ts';
import { Processor } from '../top-up/processor.ts';
import { ProcessorError } from '../top-up/processor-call.ts';
import { openPayments } from '../x402/open-payments.ts';
import { RpcError } from '../x402/rpc.ts';
import { endWith, readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { look } from './look.ts';
import { printable, printableJson } from './printable.ts';
import { csvLine, numbersTable } from './report-table.ts';
import { readWholeConfig } from './whole-config.ts';

/**
 * `speechgate report --from DAY [--to DAY] [--by day|flow|model|upstream] [--csv|--json] [--no-outside]`: what was sold
 * and earned from that day to that one (UTC, both included), what is owed, and how processor and chain agree. Exits with
 * 1 when they differ for no known reason, with 2 when one of them did not answer.
 */
const EXIT_DIFFERS = 1;
const EXIT_UNANSWERED = 2;
const USAGE = `speechgate report --from DAY [--to DAY]
What was sold and earned, what is owed, and how processor and chain agree.
  --from DAY       such as 2026-11-01, UTC; or a moment such as 2026-11-01T12:00Z
  --to DAY         included; otherwise until now
  --by GROUP       ${GROUPS.join(', ')}; otherwise day
  --csv, --json    the sales as CSV, or all as JSON
  --no-outside     asks neither processor nor chain`;

const { values } = readArguments(
  {
    options: {
      from: { type: 'string' },
      to: { type: 'string' },
      by: { type: 'string', default: 'day' },
      csv: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      'no-outside': { type: 'boolean', default: false },
    },
  },
  USAGE,
);

type Outside = Comparison | { readonly unanswered: string };

const period = readPeriod();
const group = GROUPS.find((each) => each === values.by) ?? endWith(`--by takes one of ${GROUPS.join(', ')}.`);
const settings = await commandSettings();
const config =
  values['no-outside'] || values.csv
    ? undefined
    : readWholeConfig(settings, 'ask processor and chain (--no-outside reports without)');
await look({ settings, subject: 'The books', maxConnections: 2, exitCode: EXIT_UNANSWERED }, (db) => run(db, group));

async function run(db: Database, by: Group): Promise<void> {
  const sales = await salesOf(db, period, by);
  const total = totalOf(sales);
  if (values.csv) return printCsv([...sales, total]);
  const money = await moneyOf(db, period);
  const liability = await liabilityAt(db, period.to);
  const processor = config && (await comparedProcessor(db, config));
  const chain = config && (await comparedChain(db, config));
  if (values.json) {
    console.log(printableJson({ ...period, by, sales, total, money, liability, processor, chain }));
  } else {
    console.log(`From ${period.from.toISOString()} to ${period.to.toISOString()}, in USD.\n`);
    for (const line of numbersTable(by, [...sales, total])) console.log(line);
    printAmounts('Money that came and went', { ...money });
    printAmounts('Owed at the end', { ...liability });
    if (processor) printOutside('The card processor', processor);
    if (chain) printOutside('The chain', chain);
  }
  process.exitCode = exitCodeOf([processor, chain]);
}

async function comparedProcessor(db: Database, { card }: Config): Promise<Outside> {
  if (!card) return { unanswered: 'STRIPE_SECRET_KEY is unset.' };
  return answered(compareProcessor(db, new Processor(card.secretKey, card.apiBase), period));
}

async function comparedChain(db: Database, { x402 }: Config): Promise<Outside> {
  if (!x402?.rpcUrls) return { unanswered: 'X402_PAY_TO or X402_RPC_URL is unset.' };
  const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
  return answered(compareChain(db, chain, x402, period)).finally(() => chain.close());
}

function answered(comparison: Promise<Comparison>): Promise<Outside> {
  return comparison.catch((error) => {
    if (!(error instanceof ProcessorError || error instanceof RpcError)) throw error;
    return { unanswered: error.message };
  });
}

function printOutside(who: string, outside: Outside): void {
  if ('unanswered' in outside) {
    console.log(`\n${who}: NOT ASKED: ${outside.unanswered}`);
    return;
  }
  const { differences, apart } = outside;
  console.log(`\n${who}: ${formatUsd(outside.outside)}; the ledger: ${formatUsd(outside.ledger)}`);
  console.log(`  difference   ${formatUsd(outside.outside - outside.ledger)}`);
  for (const { what, id, microUsd, because } of differences) {
    console.log(`  ${formatUsd(microUsd)}  ${what} ${printable(id)}: ${because ?? 'NOT EXPLAINED'}`);
  }
  for (const [name, microUsd] of Object.entries(apart))
    console.log(`  apart from that: ${printable(name)} ${formatUsd(microUsd)}`);
}

function printAmounts(title: string, amounts: Readonly<Record<string, bigint>>): void {
  console.log(`\n${title}`);
  for (const [name, microUsd] of Object.entries(amounts)) {
    console.log(`  ${inWords(name).padEnd(18)} ${formatUsd(microUsd).padStart(18)}`);
  }
}

function printCsv(rows: readonly Sales[]): void {
  const columns = Object.keys(rows.at(-1) ?? {}) as (keyof Sales)[];
  console.log(csvLine(columns));
  for (const row of rows) console.log(csvLine(columns.map((column) => String(row[column]))));
}

function inWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function exitCodeOf(outsides: readonly (Outside | undefined)[]): number {
  const isUnexplained = outsides.some(
    (each) => each && 'differences' in each && each.differences.some(({ because }) => !because),
  );
  if (isUnexplained) return EXIT_DIFFERS;
  return outsides.some((each) => each && 'unanswered' in each) ? EXIT_UNANSWERED : 0;
}

function readPeriod(): Period {
  if (values.from === undefined) return endWith('speechgate report takes --from, such as --from 2026-11-01.');
  const from = readMoment(values.from);
  const to = values.to === undefined ? new Date() : readEnd(values.to);
  if (!from || !to)
    return endWith('--from and --to take a day such as 2026-11-01, or a moment such as 2026-11-01T12:00Z.');
  return from < to ? { from, to } : endWith('--from is not before --to.');
}
