/**
 * `npm run lab -- fuzz [--requests N] [--seed S]`: sends N requests to its own gateway beside callers of the soak, and
 * checks each response against the contract. A failure prints a command that repeats its shrunk case. Exits with 1 on a
 * failure, or if the books disagree.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { t as root, test } from 'tap';
import { operations } from '../../test/support/contract.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { progress } from '../figures.ts';
import { untilNothingIsOpen } from '../open-things.ts';
import { Crew } from '../soak/callers/crew.ts';
import type { Told } from '../soak/told.ts';
import { brokenRequests, unfinishedRequests } from './broken-requests.ts';
import { contractRequests } from './contract-requests.ts';
import { type Conversation, converse } from './conversation.ts';
import { judge, judgeHeard } from './judge.ts';
import { openWorld, type World } from './world.ts';

/** Number of concurrent lanes for each kind, and its number of cases for each requested request. */
const LANES = {
  contract: { lanes: 4, casesPerRequest: 0.66 },
  // A conversation has about 3 requests.
  broken: { lanes: 6, casesPerRequest: 0.11 },
  limited: { lanes: 1, casesPerRequest: 0.03 },
  // Each case waits for a minute, so small runs have none.
  unfinished: { lanes: 4, casesPerRequest: 0.0004 },
};
type Kind = keyof typeof LANES;

/** One of each kind, beside the random requests. */
const CALLERS = 7;
/** Extra time to shrink a failure. */
const SHRINK_MS = 20_000;
const LONGEST_MS = 6 * 3_600_000;

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    /** Kind of the failure to repeat, with `path`: that of the shrunk case in fast-check. */
    kind: { type: 'string' },
    path: { type: 'string' },
  },
});
const [wanted, seed] = [Number(values.requests), Number(values.seed)];
/** Number of requests of each kind, and of responses for each pair of operation and status. */
const [requests, reached] = [new Map<string, number>(), new Map<string, number>()];
root.setTimeout(LONGEST_MS);

test(`${wanted} requests, seed ${seed}`, { timeout: LONGEST_MS }, async (t) => {
  const world = await openWorld(t);
  const { service } = world;
  const lanes =
    values.path === undefined
      ? Promise.all(openLanes(world))
      : Promise.all([runLane(values.kind as Kind, { seed, numRuns: 1, path: values.path }, world)]);
  await (values.path === undefined ? buyUntil(lanes, world) : lanes);
  const failures = (await lanes).filter((failure) => failure !== undefined);
  await untilNothingIsOpen(service.databaseUrl);
  const audit = await speechgate(service.env, 'audit', '--external');

  console.table(Object.fromEntries(requests));
  console.table(Object.fromEntries([...reached].sort()));
  const declared = operations.flatMap(({ operationId, responses }) =>
    Object.keys(responses).map((status) => `${operationId} ${status}`),
  );
  console.log(`declared, and never seen: ${declared.filter((pair) => !reached.has(pair)).join(', ')}`);
  console.log(audit.code === 0 ? 'the books agree' : audit.output);
  for (const failure of failures) console.log(failure);
  assert.equal(failures.length, 0, 'each response is as the contract says');
  assert.equal(audit.code, 0, audit.output);
  const total = [...requests.values()].reduce((sum, count) => sum + count, 0);
  assert.ok(values.path !== undefined || total >= wanted, 'as many as were asked for');
});

function openLanes(world: World): Promise<string | undefined>[] {
  return (Object.keys(LANES) as Kind[]).flatMap((kind) => {
    const { lanes, casesPerRequest } = LANES[kind];
    const share = (wanted * casesPerRequest) / lanes;
    const numRuns = kind === 'unfinished' ? Math.floor(share) : Math.ceil(share);
    return Array.from({ length: numRuns > 0 ? lanes : 0 }, (_, lane) => {
      const own = (Math.imul(seed, 1_000_003) + lane * 31 + kind.length) | 0;
      return runLane(kind, { seed: own, numRuns }, world);
    });
  });
}

/** Callers of all flows repeat, hang up and misuse until the requests are sent. @throws when an answer is wrong */
async function buyUntil(running: Promise<unknown>, { service }: World): Promise<void> {
  const wrong: Told[] = [];
  const crew = await Crew.open({
    ...{ world: service, seed: String(seed), callers: CALLERS, now: () => performance.now() },
    tell: (told) => {
      if (told.wrong !== undefined || told.end === 'open') wrong.push(told);
    },
    observe: (sent, heard) => count('flows', [judgeHeard(sent, heard)], 1),
  });
  const isOver = new AbortController();
  await Promise.all([running.finally(() => isOver.abort()), crew.work(isOver.signal)]).finally(() => crew.close());
  assert.deepEqual(wrong, []);
}

/** @returns the failure with the command that repeats it */
async function runLane(
  kind: Kind,
  parameters: { seed: number; numRuns: number; path?: string },
  world: World,
): Promise<string | undefined> {
  let failedAt: number | undefined;
  const property = fc.asyncProperty(conversationsOf(kind, world), async (conversation) => {
    if (failedAt !== undefined && performance.now() > failedAt + SHRINK_MS) return;
    try {
      await hold(kind, world, conversation);
    } catch (error) {
      failedAt ??= performance.now();
      throw error;
    }
  });
  const { failed, counterexample, counterexamplePath, errorInstance, seed } = await fc.check(property, parameters);
  if (!failed) return undefined;
  const shown = JSON.stringify(counterexample?.[0])?.slice(0, 3000);
  const error = String((errorInstance as Error)?.stack ?? errorInstance).slice(0, 3000);
  const failure = `npm run lab -- fuzz --kind ${kind} --seed ${seed} --path ${counterexamplePath}\n${shown}\n${error}`;
  progress(failure.slice(0, 1000));
  return failure;
}

function conversationsOf(kind: Kind, { known }: World): fc.Arbitrary<Conversation> {
  if (kind === 'broken') return brokenRequests;
  if (kind === 'unfinished') return unfinishedRequests;
  return contractRequests(known);
}

async function hold(kind: Kind, world: World, conversation: Conversation): Promise<void> {
  const { url } = kind === 'limited' ? world.limited : world.open;
  const answers = await converse(url, conversation);
  const judged = conversation.ending === 'reset' ? [] : judge(conversation, answers);
  count(kind, judged, conversation.targets.length);
}

function count(kind: string, judged: readonly string[], sent: number): void {
  requests.set(kind, (requests.get(kind) ?? 0) + sent);
  for (const pair of judged) reached.set(pair, (reached.get(pair) ?? 0) + 1);
}
