import type { Config } from '../../config/config.ts';
import type { Database } from '../../db/database.ts';
import { JSON_OPTION, UsageError } from '../../lib/arguments.ts';
import { counted } from '../../lib/counted.ts';
import { readMoment } from '../../lib/moment.ts';
import { formatUsd } from '../../lib/money.ts';
import { csvLines, printable, printableJson } from '../../lib/printable.ts';
import { Processor } from '../../payments/top-up/processor.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { shortenSecrets } from '../audit/accounts.ts';
import { isOutsideError } from '../audit/outside.ts';
import {
  AMOUNTS,
  GROUPS,
  liabilityAt,
  moneyOf,
  type Period,
  readEnd,
  type Sales,
  salesOf,
  totalOf,
} from '../report/books.ts';
import { type Comparison, compareChain, compareProcessor } from '../report/outside.ts';
import {
  commandSettings,
  defineCommand,
  EXIT_FAILED,
  EXIT_UNANSWERED,
  printLines,
  readWholeConfig,
  withDatabase,
} from './command.ts';

const USAGE = `speechgate admin report --from DAY [--to DAY]
Prints sales, other money and what you owe, and compares them with the card processor and the chain.
  --from DAY       the first day, such as 2026-11-01 (UTC), or a time such as 2026-11-01T12:00Z
  --to DAY         the last day (default: until now)
  --by GROUP       ${GROUPS.join(', ')} (default: day)
  --secrets        prints whole ids of accounts. Keep them secret: they allow spending
  --csv, --json    prints the sales as CSV, or everything as JSON
  --no-outside     does not compare with the card processor and the chain`;

const COUNTS = ['requests', 'failed', 'characters'] as const;
const TITLES = ['requests', 'failed', 'characters', 'revenue', 'held', 'upstream cost', 'margin'];

type Outside = Comparison | { readonly unanswered: string };

export const reportCommand = defineCommand({
  usage: USAGE,
  options: {
    from: { type: 'string' },
    to: { type: 'string' },
    by: { type: 'string', default: 'day' },
    secrets: { type: 'boolean', default: false },
    csv: { type: 'boolean', default: false },
    ...JSON_OPTION,
    'no-outside': { type: 'boolean', default: false },
  },
  run: async ({ from, to, by, secrets, csv, json, 'no-outside': noOutside }, _words, context) => {
    const period = readPeriod(from, to);
    const group = GROUPS.find((each) => each === by);
    if (!group) throw new UsageError(`--by is ${by}, but it must be one of ${GROUPS.join(', ')}.`);
    const settings = await commandSettings(context);
    const config =
      noOutside || csv
        ? undefined
        : await readWholeConfig(settings, 'compare with the card processor and the chain (--no-outside skips this)');
    const look = { settings, subject: 'The ledger', maxConnections: 2 };
    return withDatabase(context, look, async (db) => {
      const found = await salesOf(db, period, group);
      const isShort = group === 'account' && !secrets;
      const sales = isShort ? found.map((row) => ({ ...row, group: shortenSecrets(row.group) })) : found;
      const total = totalOf(sales);
      if (csv) {
        printLines(context, csvLines([...sales, total]));
        return 0;
      }
      const money = await moneyOf(db, period);
      const liability = await liabilityAt(db, period.to);
      const processor = config && (await comparedProcessor(db, config, period));
      const chain = config && (await comparedChain(db, config, period));
      printLines(
        context,
        json
          ? [printableJson({ ...period, by: group, sales, total, money, liability, processor, chain })]
          : [
              `From ${period.from.toISOString()} to ${period.to.toISOString()}, in USD.\n`,
              ...numbersTable(group, [...sales, total]),
              ...amountLines('Other money', money),
              ...amountLines('Owed at the end', liability),
              ...(processor ? outsideLines('The card processor', processor) : []),
              ...(chain ? outsideLines('The chain', chain) : []),
            ],
      );
      return exitCodeOf([processor, chain]);
    });
  },
});

async function comparedProcessor(db: Database, { card }: Config, period: Period): Promise<Outside> {
  if (!card) return { unanswered: 'STRIPE_SECRET_KEY is unset. Set it to compare with the card processor.' };
  return answered(compareProcessor(db, new Processor(card.secretKey, card.apiBase), period));
}

async function comparedChain(db: Database, { x402 }: Config, period: Period): Promise<Outside> {
  if (!x402?.rpcUrls)
    return { unanswered: 'X402_PAY_TO or X402_RPC_URL is unset. Set both to compare with the chain.' };
  const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
  return answered(compareChain(db, chain, x402, period)).finally(() => chain.close());
}

function answered(comparison: Promise<Comparison>): Promise<Outside> {
  return comparison.catch((error) => {
    if (!isOutsideError(error)) throw error;
    return { unanswered: error.message };
  });
}

function outsideLines(who: string, outside: Outside): string[] {
  if ('unanswered' in outside) return [`\n${who}: NOT CHECKED: ${outside.unanswered}`];
  const { outsideMicroUsd, ledgerMicroUsd, differences, apartMicroUsd } = outside;
  return [
    `\n${who}: ${formatUsd(outsideMicroUsd)}; the ledger: ${formatUsd(ledgerMicroUsd)}`,
    `  difference   ${formatUsd(outsideMicroUsd - ledgerMicroUsd)}`,
    ...differences.map(
      ({ what, id, microUsd, because }) =>
        `  ${formatUsd(microUsd)}  ${what} ${printable(id)}: ${because ?? 'NOT EXPLAINED: the ledger and the other side have different amounts. Run speechgate admin audit --external, and look up this id in both'}`,
    ),
    ...Object.entries(apartMicroUsd).map(
      ([name, microUsd]) => `  not compared: ${printable(name)} ${formatUsd(microUsd)}`,
    ),
  ];
}

function amountLines(title: string, amounts: Readonly<Record<string, bigint>>): string[] {
  const rows = Object.entries(amounts).map(
    ([name, microUsd]) => `  ${inWords(name).padEnd(18)} ${formatUsd(microUsd).padStart(18)}`,
  );
  return [`\n${title}`, ...rows];
}

function inWords(name: string): string {
  return name.replace(/MicroUsd$/, '').replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function exitCodeOf(outsides: readonly (Outside | undefined)[]): number {
  const isUnexplained = outsides.some(
    (each) => each && 'differences' in each && each.differences.some(({ because }) => !because),
  );
  if (isUnexplained) return EXIT_FAILED;
  return outsides.some((each) => each && 'unanswered' in each) ? EXIT_UNANSWERED : 0;
}

function readPeriod(fromText: string | undefined, toText: string | undefined): Period {
  if (fromText === undefined) throw new UsageError('--from is missing. Give the first day, such as --from 2026-11-01.');
  const from = readMoment(fromText);
  const to = toText === undefined ? new Date() : readEnd(toText);
  if (!from || !to) {
    throw new UsageError(
      '--from or --to is not a date. Give a day such as 2026-11-01, or a time such as 2026-11-01T12:00Z.',
    );
  }
  if (from >= to) throw new UsageError('--from must be earlier than --to.');
  return { from, to };
}

/** Numbers are right-aligned. `*` marks an upstream cost that is unknown for some requests. */
function numbersTable(title: string, rows: readonly Sales[]): string[] {
  const cells = rows.map((row) => [
    printable(row.group),
    ...COUNTS.map((column) => String(row[column])),
    ...AMOUNTS.map(
      (column) => formatUsd(row[column]) + (column === 'upstreamCostMicroUsd' && row.uncosted > 0n ? '*' : ''),
    ),
  ]);
  const lines = [[title, ...TITLES], ...cells];
  const widths = [title, ...TITLES].map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const table = lines.map((line) =>
    line
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  '),
  );
  const uncosted = rows.at(-1)?.uncosted ?? 0n;
  return uncosted === 0n
    ? table
    : [...table, `* The upstream cost of ${counted(uncosted, 'request')} is unknown, so the real cost is higher.`];
}
