/**
 * `npm run bench:growth [-- --accounts=1000000]`: a ledger that has grown beside the benchmark's own of a thousand card
 * accounts and wallets. The same payers pay in both; in the big one they are spread over all accounts. It takes some
 * gigabytes in the folder for temporary files for each million of accounts.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { sql } from 'kysely';
import { type Books, openBooks } from '../database/books.ts';
import { type Setup, setUp } from '../setup.ts';
import { ACCOUNTS, accountId, wallets } from '../world.ts';
import { openBigBooks } from './big-books.ts';
import { measureBytes, tableSizes } from './bytes.ts';
import { sizesFor } from './fill/sizes.ts';
import { payersOf } from './flows.ts';
import { measureRates } from './rates.ts';
import { type GrowthResults, reportOf } from './report.ts';
import { measureRequests } from './requests.ts';
import { timeAudit, timePruning, timeReconcilers } from './upkeep.ts';

/** Of a run in which many of the big ledger's accounts pay. */
const MANY_PAYERS = 50_000;
const RESULTS = 'bench/results';

const { values } = parseArgs({
  options: {
    accounts: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '8' },
    seconds: { type: 'string', default: '2' },
  },
});
const accounts = Number(values.accounts);
if (!(accounts >= 2 * ACCOUNTS)) throw new Error(`--accounts is at least ${2 * ACCOUNTS}`);
const pace = { rounds: Number(values.rounds), seconds: Number(values.seconds) };
const startedAt = performance.now();
const folder = await mkdtemp(join(tmpdir(), 'speechgate-growth-'));
const opened: (Books | Setup)[] = [];
try {
  const results = await run();
  await mkdir(RESULTS, { recursive: true });
  await writeFile(join(RESULTS, 'growth.json'), `${JSON.stringify(results, null, 2)}\n`);
  console.log(reportOf(results));
} finally {
  for (const each of opened.reverse()) await ('close' in each ? each.close() : each.remove());
  await rm(folder, { recursive: true, force: true });
}

async function run(): Promise<GrowthResults> {
  const sizes = sizesFor(accounts);
  const { books: big, fillSeconds } = await openBigBooks(join(folder, 'big'), sizes, progress);
  opened.push(big);
  const tables = await tableSizes(big.db);
  const databaseBytes = await sizeOf(big);
  const reconcilers = await timeReconcilers(big.db, big.url);
  const pruning = await timePruning(big.db);
  const small = await openBooks(join(folder, 'small'));
  opened.push(small);

  const payers = {
    cards: Array.from({ length: ACCOUNTS }, (_, index) => accountId(index)),
    wallets: wallets().map(({ address }) => address),
  };
  const many = await payersOf(big.db, accounts, Math.min(MANY_PAYERS, accounts / 2));
  const ledgerRates = await measureRates(
    [
      { name: 'small', db: small.db, payers },
      { name: 'big', db: big.db, payers },
      { name: 'big, many payers', db: big.db, payers: many },
    ],
    pace,
    progress,
  );
  const bytes = await measureBytes(big.db, many, progress);
  const setups = { small: await gatewayOn(small), big: await gatewayOn(big) };
  const requestRates = await measureRequests(setups, pace, progress);
  await timeAudit(small.db, () => {});
  const audit = await timeAudit(big.db, progress);
  const { transfers, payments } = sizes;
  return {
    ...{ accounts, transfers, payments, fillSeconds, databaseBytes, tables, bytes },
    ...{ ledgerRates, requestRates, reconcilers, pruning, audit },
  };
}

/** The gateway on these books, which go with it. */
async function gatewayOn(books: Books): Promise<Setup> {
  const setup = await setUp([{ name: 'ours', processes: 1 }], progress, async () => books);
  opened[opened.indexOf(books)] = setup;
  return setup;
}

async function sizeOf({ db }: Books): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    select pg_database_size(current_database())::float8 as bytes`.execute(db);
  return rows[0]?.bytes ?? 0;
}

function progress(message: string): void {
  console.error(`${String(Math.round((performance.now() - startedAt) / 1000)).padStart(4)} s  ${message}`);
}
