import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Crowd, CrowdResult } from './load/crowd.ts';
import { type Load, type LoadResult, latencyOf, type Part, type PartResult } from './load/load.ts';
import type { Prepared } from './prepare.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { type Spread, spread } from './statistics.ts';
import { startProxy } from './targets/proxy.ts';

export interface OverloadPace {
  readonly rounds: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
  readonly idle: number;
  readonly slow: number;
  readonly isDirect?: boolean;
}

interface Asked {
  readonly card: Prepared;
  readonly port: number;
  readonly paid: readonly Part[];
  readonly mix: readonly Part[];
}

interface Measured {
  readonly label: string;
  readonly askedPerSecond: number;
  /** Fraction of these for which a connection was free. */
  readonly sent: number;
  readonly servedPerSecond: number;
  /** Relative to the best rate of paid requests alone. */
  readonly ofBest: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Relative to the p99 at the sustainable rate. */
  readonly ofP99?: number;
  /** Fraction of each kind that was refused. */
  readonly shed: Readonly<Record<'paid' | 'challenge' | 'guess', number>>;
  /** Posted charges minus paid responses that arrived. Must be 0. */
  readonly chargedButNotServed: number;
}

/** Medians over the rounds. Ratios are taken within each round and keep their minimum and maximum. */
export interface OverloadLine extends Omit<Measured, 'ofBest' | 'ofP99'> {
  readonly ofBest: Spread;
  readonly ofP99?: Spread;
  /** The value farthest from 0. */
  readonly chargedButNotServed: number;
}

const CONCURRENCY = 64;
/** As a proxy would open them. A request that finds none free is not sent. */
const CONNECTIONS = 2_000;
const SUSTAINABLE = 0.8;
const OVERLOAD = 5;
const PAID = ['card', 'prepaid'] as const;
const PAID_SHARES = { card: 0.7, prepaid: 0.3 } as const;
const SHARES = { paid: 0.5, challenge: 0.3, guess: 0.2 } as const;
const BOOKED_WITHIN_MS = 20_000;
const POLL_MS = 50;

interface Phase extends Pick<Load, 'pace' | 'parts' | 'most'> {
  readonly label: string;
  readonly crowd?: Pick<Crowd, 'manner' | 'connections'>;
}

/**
 * Measures paid requests at five times the sustainable rate: among challenges and guesses, beside slow readers, slow
 * writers and idle connections. Compares the ledger with the served requests.
 * @param rows card, prepaid and challenge
 */
export async function measureOverload(
  setup: Setup,
  rows: readonly Prepared[],
  pace: OverloadPace,
  onProgress: (message: string) => void,
): Promise<OverloadLine[]> {
  await setup.speak(AT_ONCE);
  const [card] = rows as [Prepared];
  const gateway = setup.target(card.row.target);
  const proxy = pace.isDirect ? undefined : await startProxy(gateway, setup.folder);
  const port = proxy?.port ?? gateway.port;
  const parts = {
    paid: PAID.map((name) => partOf(rows, name, PAID_SHARES[name])),
    mix: [
      ...PAID.map((name) => partOf(rows, name, SHARES.paid * PAID_SHARES[name])),
      partOf(rows, 'challenge', SHARES.challenge),
      await guesses(setup, card),
    ],
  };
  const rounds: Measured[][] = [];
  try {
    for (let round = 1; round <= pace.rounds; round++) {
      onProgress(`overload: round ${round} of ${pace.rounds}${proxy ? ', through HAProxy' : ''}`);
      rounds.push(await measureRound(setup, { card, port, ...parts }, pace, onProgress));
    }
  } finally {
    await proxy?.program.stop();
  }
  const [first = []] = rounds;
  return first.map((_, index) => together(rounds.map((lines) => lines[index] as Measured)));
}

async function measureRound(
  setup: Setup,
  { card, port, paid, mix }: Asked,
  pace: OverloadPace,
  onProgress: (message: string) => void,
): Promise<Measured[]> {
  const lines: Measured[] = [];
  const measure = async (phase: Phase) => {
    const line = await measureOne(setup, { card, port }, phase, pace, lines);
    lines.push(line);
    const [served, asked] = [line.servedPerSecond.toFixed(0), line.askedPerSecond.toFixed(0)];
    onProgress(`  ${phase.label}: ${served}/s paid of ${asked}/s asked, p99 ${line.p99Ms.toFixed(0)} ms`);
    return line;
  };

  const most = Math.ceil(2 * card.rate * (pace.warmUpSeconds + pace.seconds));
  const best = await measure({
    label: `paid requests only, ${CONCURRENCY} at a time: the best rate`,
    ...{ pace: { concurrency: CONCURRENCY }, most, parts: paid },
  });
  const sustainable = { requestsPerSecond: best.servedPerSecond * SUSTAINABLE, connections: CONNECTIONS };
  const over = { pace: { ...sustainable, requestsPerSecond: sustainable.requestsPerSecond * OVERLOAD }, parts: mix };
  const { slow, idle } = pace;
  await measure({ label: 'paid requests only, 0.8x', pace: sustainable, parts: paid });
  await measure({ label: 'the mix, 0.8x', pace: sustainable, parts: mix });
  await measure({ label: 'the mix, 5x', ...over });
  await measure({ label: 'paid requests only, 5x', ...over, parts: paid });
  await measure({
    ...{ label: `the mix, 5x, beside ${slow} slow readers`, ...over },
    crowd: { manner: 'readers', connections: slow },
  });
  await measure({
    ...{ label: `the mix, 5x, beside ${slow} slow writers`, ...over },
    crowd: { manner: 'writers', connections: slow },
  });
  await measure({
    ...{ label: `the mix, 5x, beside ${idle} idle connections`, ...over },
    crowd: { manner: 'idle', connections: idle },
  });
  await measure({ label: 'the mix, 0.8x, afterwards', pace: sustainable, parts: mix });
  return lines;
}

function together(lines: readonly Measured[]): OverloadLine {
  const of = (figure: (line: Measured) => number) => spread(lines.map(figure)).median;
  const ofP99 = lines.flatMap((line) => line.ofP99 ?? []);
  const [first] = lines as [Measured];
  return {
    label: first.label,
    askedPerSecond: of((line) => line.askedPerSecond),
    sent: of((line) => line.sent),
    servedPerSecond: of((line) => line.servedPerSecond),
    ofBest: spread(lines.map((line) => line.ofBest)),
    p50Ms: of((line) => line.p50Ms),
    p99Ms: of((line) => line.p99Ms),
    ...(ofP99.length > 0 && { ofP99: spread(ofP99) }),
    shed: {
      paid: of(({ shed }) => shed.paid),
      challenge: of(({ shed }) => shed.challenge),
      guess: of(({ shed }) => shed.guess),
    },
    chargedButNotServed: lines
      .map((line) => line.chargedButNotServed)
      .reduce((most, each) => (Math.abs(each) > Math.abs(most) ? each : most)),
  };
}

async function measureOne(
  setup: Setup,
  { card: { row }, port }: Pick<Asked, 'card' | 'port'>,
  { label, crowd, ...load }: Phase,
  { warmUpSeconds, seconds }: OverloadPace,
  before: readonly Measured[],
): Promise<Measured> {
  const { pid } = setup.target(row.target);
  if (crowd) await setup.besides<CrowdResult>({ kind: 'crowd', port, ...crowd });
  const chargedBefore = await charges(setup);
  const result = await setup.load<LoadResult>(row, {
    kind: 'load',
    port,
    ...load,
    warmUpSeconds,
    seconds,
    mayRefuse: true,
    targetPid: pid,
  });
  const charged = (await charges(setup)) - chargedBefore;
  if (crowd) {
    const { open } = await setup.besides<CrowdResult>({ kind: 'crowd-end' });
    if (crowd.manner === 'idle' && open < crowd.connections) {
      throw new Error(`${crowd.connections - open} of ${crowd.connections} idle connections were closed`);
    }
  }
  const of = (names: readonly string[]) => names.flatMap((name) => result.parts[name] ?? []);
  const paid = of(PAID);
  const sum = (results: readonly PartResult[], ...what: ('unsent' | 'served' | 'refused')[]) =>
    results.reduce((total, each) => total + what.reduce((some, name) => some + each[name], 0), 0);
  const share = (results: readonly PartResult[]) =>
    sum(results, 'refused') / Math.max(1, sum(results, 'served', 'refused'));
  const servedPerSecond = sum(paid, 'served') / result.seconds;
  const all = Object.values(result.parts);
  const asked = sum(all, 'served', 'refused', 'unsent');
  const [best, sustained] = before;
  const p99Ms = latencyOf(paid, 0.99);
  return {
    ...{ label, servedPerSecond, p50Ms: latencyOf(paid, 0.5), p99Ms },
    askedPerSecond: asked / result.seconds,
    sent: 1 - sum(all, 'unsent') / Math.max(1, asked),
    ofBest: servedPerSecond / (best?.servedPerSecond ?? servedPerSecond),
    ...(sustained && { ofP99: p99Ms / sustained.p99Ms }),
    shed: { paid: share(paid), challenge: share(of(['challenge'])), guess: share(of(['guess'])) },
    chargedButNotServed: charged - PAID.reduce((total, name) => total + (result.servedInAll[name] ?? 0), 0),
  };
}

function partOf(rows: readonly Prepared[], name: string, share: number): Part {
  const { plan, expected } = rows.find(({ row }) => row.name === name) as Prepared;
  return { name, share, plan, expected };
}

/** Requests with account ids that do not exist, from separate addresses. */
async function guesses(setup: Setup, { plan: { path, body }, row }: Prepared): Promise<Part> {
  const plan = { path, body, headers: {}, payment: { by: 'guess' } } as const;
  const { port } = setup.target(row.target);
  const headers = { 'content-type': 'application/json', 'x-credit-account': 'b0000000-0000-4000-8000-ffffffffffff' };
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body, headers });
  const { length } = Buffer.from(await answer.arrayBuffer());
  return { name: 'guess', share: SHARES.guess, plan, expected: { status: answer.status, bytes: length } };
}

/** Number of posted charges, once none is pending. */
async function charges({ books: { db } }: Setup): Promise<number> {
  for (const deadline = performance.now() + BOOKED_WITHIN_MS; ; await sleep(POLL_MS)) {
    const { rows } = await sql<{ pending: number; standing: number }>`
      select count(*) filter (where state = 'pending')::int as pending,
        (count(*) filter (where state = 'posted' and kind in ('charge', 'spend'))
          - count(*) filter (where kind = 'reversal'))::int as standing
      from transfer`.execute(db);
    const [{ pending, standing }] = rows as [{ pending: number; standing: number }];
    if (pending === 0) return standing;
    if (performance.now() > deadline) throw new Error(`${pending} holds were not ended`);
  }
}
