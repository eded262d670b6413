import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import { type Cells, progress } from '../figures.ts';
import type { Load, Part, PartResult } from './load/main.ts';
import type { Setup } from './setup.ts';
import { quantile, type Spread, spread, whole } from './statistics.ts';
import { startProxy } from './targets.ts';
import type { Prepared } from './throughput.ts';

export interface OverloadPace {
  readonly rounds: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

/** Figures of a phase, in the order of the table's columns. */
interface Measured {
  readonly askedPerSecond: number;
  /** Fraction of these for which a connection was free. */
  readonly sent: number;
  readonly servedPerSecond: number;
  /** Relative to the best rate of paid requests alone. */
  readonly ofBest: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Fraction of each kind that was refused. */
  readonly shedPaid: number;
  readonly shedChallenges: number;
  readonly shedGuesses: number;
  /** Posted charges minus paid responses that arrived. Must be 0. */
  readonly chargedButNotServed: number;
}

const CONCURRENCY = 64;
/** As a proxy would open them. A request that finds none free is not sent. */
const CONNECTIONS = 2_000;
const [SUSTAINABLE, OVERLOAD] = [0.8, 5];
const PAID_SHARES = { card: 0.7, prepaid: 0.3 };
const SHARES = { paid: 0.5, challenge: 0.3, guess: 0.2 };
const BOOKED_WITHIN_MS = 20_000;
const POLL_MS = 50;

const COLUMNS: readonly (readonly [title: string, name: keyof Measured, show: (value: Spread) => string])[] = [
  ['asked/s', 'askedPerSecond', rounded],
  ['sent', 'sent', percent],
  ['paid answers/s', 'servedPerSecond', rounded],
  ['of the best', 'ofBest', ({ median, min, max }) => `${median.toFixed(2)}x (${min.toFixed(2)}–${max.toFixed(2)})`],
  ['p50 ms', 'p50Ms', rounded],
  ['p99 ms', 'p99Ms', rounded],
  ['refused: paid', 'shedPaid', percent],
  ['challenges', 'shedChallenges', percent],
  ['guesses', 'shedGuesses', percent],
];

/**
 * Measures paid requests at five times the sustainable rate, alone and among challenges and guesses, through HAProxy.
 * Compares the ledger with the served requests. Shows the median of the rounds.
 * @param rows card, prepaid and challenge
 */
export async function measureOverload(setup: Setup, rows: readonly Prepared[], pace: OverloadPace): Promise<Cells> {
  const [card] = rows as [Prepared];
  const gateway = setup.target(card.row.target);
  const { program, port } = await startProxy(gateway, setup.folder);
  const partOf = (name: string, share: number): Part => {
    const { plan, expected } = rows.find(({ row }) => row.name === name) as Prepared;
    return { name, share, plan, expected };
  };
  const paid = Object.entries(PAID_SHARES).map(([name, share]) => partOf(name, share));
  const mix = [
    ...paid.map((part) => ({ ...part, share: SHARES.paid * part.share })),
    partOf('challenge', SHARES.challenge),
    await guesses(gateway.port, card),
  ];
  const lines = new Map<string, Measured[]>();

  const measureRound = async () => {
    let best = 0;
    const measure = async (label: string, load: Pick<Load, 'connections' | 'requestsPerSecond' | 'most' | 'parts'>) => {
      const { warmUpSeconds, seconds } = pace;
      const line = await measureOne(
        setup,
        card,
        { port, warmUpSeconds, seconds, targetPid: gateway.pid, ...load },
        best,
      );
      lines.set(label, [...(lines.get(label) ?? []), line]);
      progress(`overload, ${label}: ${whole(line.servedPerSecond)}/s paid of ${whole(line.askedPerSecond)}/s asked`);
      best ||= line.servedPerSecond;
    };
    const most = Math.ceil(2 * card.rate * (pace.warmUpSeconds + pace.seconds));
    await measure(`paid requests only, ${CONCURRENCY} at a time: the best rate`, {
      ...{ connections: CONCURRENCY, most, parts: paid },
    });
    const sustainable = { connections: CONNECTIONS, requestsPerSecond: best * SUSTAINABLE };
    const over = { connections: CONNECTIONS, requestsPerSecond: best * SUSTAINABLE * OVERLOAD };
    await measure('paid requests only, 0.8x', { ...sustainable, parts: paid });
    await measure('the mix, 0.8x', { ...sustainable, parts: mix });
    await measure('the mix, 5x', { ...over, parts: mix });
    await measure('paid requests only, 5x', { ...over, parts: paid });
    await measure('the mix, 0.8x, afterwards', { ...sustainable, parts: mix });
  };

  try {
    for (let round = 0; round < pace.rounds; round++) await measureRound();
  } finally {
    await program.stop();
  }
  const cells = [...lines].map(([label, measured]) => [
    label,
    ...COLUMNS.map(([, name, show]) => show(spread(measured.map((each) => each[name])))),
    measured.map((each) => each.chargedButNotServed).join(', '),
  ]);
  return [['load', ...COLUMNS.map(([title]) => title), 'charged − served'], ...cells];
}

async function measureOne(setup: Setup, { row }: Prepared, load: Load, best: number): Promise<Measured> {
  const chargedBefore = await charges(setup);
  const { parts, seconds } = await setup.load(row, { ...load, mayRefuse: true });
  const charged = (await charges(setup)) - chargedBefore;
  const of = (...names: string[]) => names.flatMap((name) => parts[name] ?? []);
  const sum = (results: readonly PartResult[], ...what: ('unsent' | 'served' | 'refused' | 'servedInAll')[]) =>
    results.flatMap((each) => what.map((name) => each[name])).reduce((total, each) => total + each, 0);
  const shed = (results: readonly PartResult[]) =>
    sum(results, 'refused') / Math.max(1, sum(results, 'served', 'refused'));
  const [all, paid] = [Object.values(parts), of(...Object.keys(PAID_SHARES))];
  const asked = sum(all, 'served', 'refused', 'unsent');
  const servedPerSecond = sum(paid, 'served') / seconds;
  const latenciesMs = paid.flatMap((each) => each.latenciesMs);
  return {
    askedPerSecond: asked / seconds,
    sent: 1 - sum(all, 'unsent') / Math.max(1, asked),
    servedPerSecond,
    ofBest: servedPerSecond / (best || servedPerSecond),
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    ...{ shedPaid: shed(paid), shedChallenges: shed(of('challenge')), shedGuesses: shed(of('guess')) },
    chargedButNotServed: charged - sum(paid, 'servedInAll'),
  };
}

/** Requests with account ids that do not exist, from separate addresses. */
async function guesses(port: number, { plan: { path, body } }: Prepared): Promise<Part> {
  const headers = { 'content-type': 'application/json', 'x-credit-account': 'b0000000-0000-4000-8000-ffffffffffff' };
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body, headers });
  const { byteLength: bytes } = await answer.arrayBuffer();
  const plan = { path, body, headers: {}, payment: { by: 'guess' } } as const;
  return { name: 'guess', share: SHARES.guess, plan, expected: { status: answer.status, bytes } };
}

/** Number of posted charges, once none is pending. */
async function charges({ books: { db } }: Setup): Promise<number> {
  for (const deadline = performance.now() + BOOKED_WITHIN_MS; ; await sleep(POLL_MS)) {
    const { rows } = await sql<{ pending: number; posted: number }>`
      select count(*) filter (where state = 'pending')::int as pending,
        count(*) filter (where state = 'posted' and kind in ('charge', 'spend'))::int as posted
      from transfer`.execute(db);
    const [{ pending, posted }] = rows as [{ pending: number; posted: number }];
    if (pending === 0) return posted;
    if (performance.now() > deadline) throw new Error(`${pending} holds were not ended`);
  }
}

function rounded({ median }: Spread): string {
  return whole(median);
}

function percent({ median }: Spread): string {
  return `${(median * 100).toFixed(0)} %`;
}
