import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Test } from 'tap';
import { speechgate } from '../../test/support/speechgate.ts';
import { untilNothingIsOpen } from '../open-things.ts';
import { Crew } from '../soak/callers/crew.ts';
import type { Told } from '../soak/told.ts';
import { brokenRequests, unfinishedRequests } from './broken-requests.ts';
import { contractRequests } from './contract-requests.ts';
import { type Conversation, converse } from './conversation.ts';
import { Figures } from './figures.ts';
import { type Judged, judge, judgeHeard } from './judge.ts';
import { faultOfRequest } from './oracle.ts';
import { type Usage, usageOf } from './usage.ts';
import { openWorld, type World } from './world.ts';

export type Kind = 'contract' | 'broken' | 'limited' | 'unfinished';

export interface FuzzOptions {
  readonly requests: number;
  readonly seed: number;
  /** Repeats one failure, by its printed kind and path, instead of all lanes. */
  readonly again?: { readonly kind: Kind; readonly path: string };
  readonly progress: (message: string) => void;
}

export interface Failure {
  readonly kind: Kind;
  readonly seed: number;
  /** Path of the shrunk case in fast-check. */
  readonly path: string;
  readonly shown: string;
  readonly error: string;
}

export interface FuzzResult {
  readonly figures: Figures;
  readonly failures: readonly Failure[];
  /** Usage of the open gateway after each part. The first part is the warm-up. */
  readonly usage: readonly Usage[];
  /** Result of `speechgate audit --external`. Code 0 means that the books agree. */
  readonly audit: { readonly code: number; readonly output: string };
}

const PARTS = 5;
/** One of each kind, beside the random requests. */
const CALLERS = 7;
/** Extra time to shrink a failure. */
const SHRINK_MS = 20_000;

/** Number of concurrent lanes for each kind, and its number of cases for each requested request. */
const LANES: Readonly<Record<Kind, { readonly lanes: number; readonly casesPerRequest: number }>> = {
  contract: { lanes: 4, casesPerRequest: 0.66 },
  // A conversation has about 3 requests.
  broken: { lanes: 6, casesPerRequest: 0.11 },
  limited: { lanes: 1, casesPerRequest: 0.03 },
  // Each case waits for a minute, so small runs have none.
  unfinished: { lanes: 4, casesPerRequest: 0.0004 },
};

/**
 * Sends the requests beside callers of the soak, checks each response against the contract, and audits the books at
 * the end.
 */
export async function fuzz(t: Test, options: FuzzOptions): Promise<FuzzResult> {
  const { requests, progress, again } = options;
  const figures = new Figures();
  const world = await openWorld(t);
  const failures: Failure[] = [];
  const usage: Usage[] = [];
  if (again) {
    const failure = await runLane(again.kind, { seed: options.seed, numRuns: 1, path: again.path }, world, figures);
    if (failure) failures.push(failure);
  }
  for (let part = 0; part < PARTS && !again && failures.length === 0; part += 1) {
    const lanes = (Object.keys(LANES) as Kind[]).flatMap((kind) => {
      const { lanes, casesPerRequest } = LANES[kind];
      const share = (requests * casesPerRequest) / PARTS / lanes;
      const numRuns = kind === 'unfinished' ? Math.floor(share) : Math.ceil(share);
      return Array.from({ length: lanes }, (_, lane) => ({ kind, numRuns, lane }));
    });
    const running = Promise.all(
      lanes
        .filter(({ numRuns }) => numRuns > 0)
        .map(({ kind, numRuns, lane }) => {
          const seed = (Math.imul(options.seed, 1_000_003) + part * 1009 + lane * 31 + kind.length) | 0;
          return runLane(kind, { seed, numRuns }, world, figures);
        }),
    );
    await buyUntil(running, world, `${options.seed}, part ${part}`, figures);
    failures.push(...(await running).filter((failure) => failure !== undefined));
    for (const { kind, shown, error } of failures) progress(`${kind} ${shown.slice(0, 500)}\n${error.slice(0, 1000)}`);
    await untilNothingIsOpen(world.service.databaseUrl);
    usage.push(usageOf(world.open.child.process.pid as number));
    progress(`${figures.total} requests, ${failures.length} failures, ${describe(usage.at(-1) as Usage)}`);
  }
  return { figures, failures, usage, audit: await speechgate(world.service.env, 'audit', '--external') };
}

/** Callers of all flows repeat, hang up and misuse until the requests are sent. @throws when an answer is wrong */
async function buyUntil(running: Promise<unknown>, { service }: World, seed: string, figures: Figures): Promise<void> {
  const wrong: Told[] = [];
  const crew = await Crew.open({
    ...{ world: service, seed, callers: CALLERS, now: () => performance.now() },
    tell: (told) => {
      if (told.wrong !== undefined || told.end === 'open') wrong.push(told);
    },
    observe: (sent, heard) => figures.add('flows', [judgeHeard(sent, heard)], 1),
  });
  const isOver = new AbortController();
  await Promise.all([running.finally(() => isOver.abort()), crew.work(isOver.signal)]).finally(() => crew.close());
  assert.deepEqual(wrong, []);
}

async function runLane(
  kind: Kind,
  parameters: { seed: number; numRuns: number; path?: string },
  world: World,
  figures: Figures,
): Promise<Failure | undefined> {
  let failedAt: number | undefined;
  const isOver = () => failedAt !== undefined && performance.now() > failedAt + SHRINK_MS;
  const property = <T>(arbitrary: fc.Arbitrary<T>, run: (drawn: T) => Promise<void>) =>
    fc.asyncProperty(arbitrary, async (drawn) => {
      if (isOver()) return;
      try {
        await run(drawn);
      } catch (error) {
        failedAt ??= performance.now();
        throw error;
      }
    });
  const details = await fc.check(
    property(conversationsOf(kind, world), (conversation) => hold(kind, world, conversation, figures)),
    parameters,
  );
  if (!details.failed) return undefined;
  const { counterexample, counterexamplePath, errorInstance, seed } = details;
  const [shown] = counterexample ?? [];
  return {
    ...{ kind, seed, path: counterexamplePath ?? '' },
    shown: JSON.stringify(shown),
    error: String((errorInstance as Error)?.stack ?? errorInstance),
  };
}

function conversationsOf(kind: Kind, { known }: World): fc.Arbitrary<Conversation> {
  if (kind === 'broken') return brokenRequests;
  if (kind === 'unfinished') return unfinishedRequests;
  return contractRequests(known);
}

async function hold(kind: Kind, world: World, conversation: Conversation, figures: Figures): Promise<void> {
  const { url } = kind === 'limited' ? world.limited : world.open;
  const answers = await converse(url, conversation);
  const judged = conversation.ending === 'reset' ? [] : judge(conversation, answers);
  figures.add(kind, judged, conversation.targets.length);
  if (kind === 'contract') compareRequest(conversation, judged[0], figures);
}

/** A served request must also be valid for the oracle. */
function compareRequest({ pieces, targets }: Conversation, judged: Judged | undefined, { forbidden }: Figures): void {
  const [bytes = ''] = pieces;
  const [target] = targets;
  if (!target || !judged || judged.operation === 'edge' || judged.status >= 400) return;
  const fault = faultOfRequest(target, bytes);
  if (fault) forbidden.set(`${judged.operation}: ${fault.split('\n').slice(1).join(' ')}`, bytes.slice(0, 1000));
}

const MIB = 1024 * 1024;

export const describe = ({ residentBytes, descriptors }: Usage): string =>
  `resident ${(residentBytes / MIB).toFixed(1)} MiB, ${descriptors} descriptors`;
