/**
 * `npm run bench:growth [-- --accounts=1000000]`: the ledger of a service that has grown, beside that of a young one. It
 * takes some gigabytes below the folder for temporary files for each million of accounts.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { sql } from 'kysely';
import { measureBytes, tableSizes } from './bytes.ts';
import { sizesFor } from './fill/sizes.ts';
import { payersOf } from './flows.ts';
import { type FilledLedger, openFilledLedger } from './ledger.ts';
import { measureRates } from './rates.ts';
import { type GrowthResults, reportOf } from './report.ts';
import { timeAudit, timePruning, timeReconcilers } from './upkeep.ts';

/** Of the young service; as many pay in both, spread over all accounts of the grown one. */
const SMALL_ACCOUNTS = 100;
const PAYERS = SMALL_ACCOUNTS / 2;
/** Of a run in which many of the grown service's accounts pay. */
const MANY_PAYERS = 50_000;
/** Nonces of two days beyond their time are left to be pruned. */
const NONCE_HOURS = 72;

const { values } = parseArgs({
  options: {
    accounts: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '10' },
    seconds: { type: 'string', default: '2' },
  },
});
const accounts = Number(values.accounts);
const startedAt = performance.now();
const ledgers: FilledLedger[] = [];
try {
  const results = await run();
  await mkdir('bench/results', { recursive: true });
  await writeFile('bench/results/growth.json', `${JSON.stringify(results, null, 2)}\n`);
  console.log(reportOf(results));
} finally {
  for (const ledger of ledgers) await ledger.remove();
}

async function run(): Promise<GrowthResults> {
  const open = async (name: string, count: number) => {
    const ledger = await openFilledLedger(name, { ...sizesFor(count), nonceHours: NONCE_HOURS }, progress);
    ledgers.push(ledger);
    return ledger;
  };
  const small = await open('small', SMALL_ACCOUNTS);
  const big = await open('big', accounts);
  const tables = await tableSizes(big.db);
  const databaseBytes = await sizeOf(big);
  const reconcilers = await timeReconcilers(big.db, big.url);
  const pruning = await timePruning(big.db);

  const few = await payersOf(big.db, accounts, PAYERS);
  const many = await payersOf(big.db, accounts, Math.min(MANY_PAYERS, accounts / 2));
  const rates = await measureRates(
    [
      { name: 'small', db: small.db, payers: await payersOf(small.db, SMALL_ACCOUNTS, PAYERS) },
      { name: 'big', db: big.db, payers: few },
      { name: 'big, many payers', db: big.db, payers: many },
    ],
    { rounds: Number(values.rounds), seconds: Number(values.seconds) },
    progress,
  );
  const bytes = await measureBytes(big.db, many, progress);
  for (const ledger of ledgers) await timeReconcilers(ledger.db, ledger.url);
  await timeAudit(small.db, () => {});
  const audit = await timeAudit(big.db, progress);
  const { transfers, payments } = big.sizes;
  const { fillSeconds } = big;
  return {
    accounts,
    transfers,
    payments,
    fillSeconds,
    databaseBytes,
    tables,
    bytes,
    rates,
    reconcilers,
    pruning,
    audit,
  };
}

async function sizeOf({ db }: FilledLedger): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    select pg_database_size(current_database())::float8 as bytes`.execute(db);
  return rows[0]?.bytes ?? 0;
}

function progress(message: string): void {
  console.error(`${String(Math.round((performance.now() - startedAt) / 1000)).padStart(4)} s  ${message}`);
}
