import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { cpuOf } from '../processes.ts';
import type { Setup } from '../setup.ts';
import { type Spread, spread } from '../statistics.ts';
import { startProgram, typescript } from '../targets/program.ts';
import { CONCURRENCY } from '../world.ts';
import { debitScripts, type Script } from './captured-sql.ts';
import type { DebitJob, DebitResult } from './main.ts';
import { pgbench, pgbenchVersion } from './pgbench.ts';

export interface LedgerPace {
  readonly rounds: number;
  readonly seconds: number;
  /** How many accounts the debits are spread over, each measured on its own. */
  readonly accounts: readonly number[];
}

export interface LedgerLine {
  readonly label: string;
  readonly accounts: number;
  readonly perSecond: Spread;
  /** Of PostgreSQL, for one. */
  readonly postgresCpuMs: Spread;
  /** To pgbench with the same SQL on as many accounts; 0.9 is asked for on one. */
  readonly ofPgbench: number | undefined;
}

export interface LedgerResult {
  /** Undefined where it is not installed, and its lines are missing. */
  readonly pgbench: string | undefined;
  readonly lines: readonly LedgerLine[];
}

interface Kind {
  readonly label: string;
  readonly accounts: number;
  /** How many there were in a second. */
  run(): Promise<number>;
  readonly floor?: Kind;
}

/** Of the ledger that others use. */
const TRANSFER_ACCOUNTS = [10, 50];

/** What the ledger alone does, beside pgbench with its SQL and beside a ledger of transfers of another make. */
export async function measureLedger(
  setup: Setup,
  pace: LedgerPace,
  onProgress: (message: string) => void,
): Promise<LedgerResult> {
  const version = await pgbenchVersion();
  if (version === undefined)
    onProgress('pgbench is not installed (Debian has it in postgresql-contrib): no floor is measured');
  const kinds =
    version === undefined
      ? ownKinds(setup, pace)
      : [...(await floorKinds(setup, pace)), ...(await transferKinds(setup, pace))];
  const measured = new Map<Kind, { rate: number; cpuMs: number }[]>(kinds.map((kind) => [kind, []]));
  for (let round = 0; round < pace.rounds; round++) {
    for (const kind of round % 2 === 0 ? kinds : kinds.toReversed()) {
      onProgress(`ledger, round ${round + 1} of ${pace.rounds}: ${kind.label} (${kind.accounts})`);
      const before = cpuOf(setup.books.postmaster);
      const rate = await kind.run();
      const cpuMs = (cpuOf(setup.books.postmaster) - before) / (rate * pace.seconds);
      measured.get(kind)?.push({ rate, cpuMs });
    }
  }
  const of = (kind: Kind) => measured.get(kind) ?? [];
  const lines = kinds.map((kind) => {
    const ratios =
      kind.floor && of(kind).map(({ rate }, round) => rate / (of(kind.floor as Kind)[round]?.rate as number));
    return {
      ...{ label: kind.label, accounts: kind.accounts },
      perSecond: spread(of(kind).map(({ rate }) => rate)),
      postgresCpuMs: spread(of(kind).map(({ cpuMs }) => cpuMs)),
      ofPgbench: ratios && spread(ratios).median,
    };
  });
  return { pgbench: version, lines };
}

const ownKinds = (setup: Setup, pace: LedgerPace): Kind[] =>
  pace.accounts.map((accounts) => ({
    ...{ label: 'hold and capture, functions of the ledger', accounts },
    run: async () => {
      const { folder, books } = setup;
      const program = await startProgram({ name: 'ledger', args: typescript('bench/ledger/main.ts'), folder });
      const job: DebitJob = { databaseUrl: books.url, accounts, concurrency: CONCURRENCY, seconds: pace.seconds };
      return (await program.ask<DebitResult>(job)).debitsPerSecond;
    },
  }));

async function floorKinds(setup: Setup, pace: LedgerPace): Promise<Kind[]> {
  const scripts = await debitScripts(setup.books.url, Math.max(...pace.accounts));
  const settings = { url: setup.books.url, folder: setup.folder, concurrency: CONCURRENCY, seconds: pace.seconds };
  return ownKinds(setup, pace).flatMap((own) => {
    const floor = {
      ...{ label: 'hold and capture, pgbench with the same SQL', accounts: own.accounts },
      run: () => pgbench(scripts.slice(0, own.accounts), settings),
    };
    return [floor, { ...own, floor }];
  });
}

async function transferKinds(setup: Setup, pace: LedgerPace): Promise<Kind[]> {
  const url = new URL(setup.books.url);
  url.pathname = '/transfer_ledger';
  await query(setup.books.url, 'create database transfer_ledger');
  await query(url.href, await readFile(new URL('transfer-ledger.sql', import.meta.url), 'utf8'));
  const settings = { url: url.href, folder: setup.folder, concurrency: CONCURRENCY, seconds: pace.seconds };
  return TRANSFER_ACCOUNTS.filter((accounts) => accounts <= Math.max(...pace.accounts)).map((accounts) => ({
    ...{ label: 'transfer in a ledger of the shape of pgledger, pgbench', accounts },
    run: () => pgbench([transferScript(accounts)], settings),
  }));
}

const transferScript = (accounts: number): Script => ({
  text:
    `\\set payer random(1, ${accounts})\n` +
    `\\set payee 1 + (:payer - 1 + random(1, ${accounts - 1})) % ${accounts}\n` +
    `select move('account_' || :payer::int, 'account_' || :payee::int, 1);\n`,
  variables: {},
});

async function query(url: string, text: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(text).finally(() => client.end());
}
