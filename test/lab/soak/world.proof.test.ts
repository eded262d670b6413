import assert from 'node:assert/strict';
import { test } from 'tap';
import { Diary } from '../../../lab/ha/ask.ts';
import { buy } from '../../../lab/ha/flows.ts';
import { DATABASE } from '../../../lab/soak/faults/database.ts';
import { LINKS } from '../../../lab/soak/faults/links.ts';
import { FaultSchedule, heal } from '../../../lab/soak/faults/schedule.ts';
import { Random } from '../../../lab/soak/random.ts';
import { openWorld } from '../../../lab/soak/world/open-world.ts';
import { speechOf } from '../../../lab/soak/world/speech.ts';
import type { PartName, World } from '../../../lab/soak/world/world.ts';
import { testChain } from '../../support/chain.ts';
import { until } from '../../support/until.ts';

const { skip } = await testChain();
/** Its objects are in memory. */
const KEPT: readonly PartName[] = ['store'];

const credit = ({ gateways: [url], payTo, processor }: World) =>
  buy({ url, payTo, checkout: processor as never, diary: new Diary() });

/** The status of an answer, or of none, and whether its audio is the text's own. */
async function speak(origin: string, account: string, text: string): Promise<readonly [status: number, own: boolean]> {
  try {
    const answer = await fetch(`${origin}/tts?text=${encodeURIComponent(text)}`, {
      headers: { 'x-credit-account': account },
    });
    return [answer.status, speechOf(text).equals(Buffer.from(await answer.arrayBuffer()))];
  } catch {
    return [0, false];
  }
}

test("the soak's world serves again after killed parts and broken links", { skip }, async (t) => {
  const world = await openWorld(t);
  const account = await credit(world);
  assert.ok(account);
  // A busy machine can need longer than the world's short speech timeout: the client then retries.
  const served = async (text: string) => {
    for (const origin of world.gateways) {
      await until(async () => {
        const [status, own] = await speak(origin, account, text);
        assert.equal(own, status === 200);
        return own;
      });
    }
  };
  await served('Before');

  const isOver = new AbortController();
  const statuses = new Set<number>();
  const load = (async () => {
    for (let number = 0; !isOver.signal.aborted; number++) {
      const [status, own] = await speak(world.gateways[number % 2] as string, account, `Meanwhile ${number}`);
      assert.equal(own, status === 200);
      statuses.add(status);
    }
  })();

  const names = Object.keys(world.parts) as PartName[];
  await Promise.all(
    names
      .filter((name) => !KEPT.includes(name))
      .map(async (name) => {
        await world.parts[name].kill();
        await world.parts[name].start();
      }),
  );
  await world.parts.store.freeze();
  await world.parts.store.thaw();
  await world.untilReady();
  await served('After kills');

  const strike = (wanted: RegExp) =>
    Promise.all(
      [...LINKS, ...DATABASE]
        .filter(({ name }) => wanted.test(name))
        .map((fault) => fault.strike(world, new Random('proof', fault.name))),
    );
  const asked = world.links.upstream.requests;
  await strike(/: lost answers$|^cut connections/);
  await strike(/: half answers$|^lost answer for/);
  await world.parts.chain.reorganize(1);
  assert.ok(world.links.upstream.requests > asked);

  const schedule = new FaultSchedule(world, 'proof', () => performance.now());
  schedule.begin();
  await until(() => schedule.struck.length > 0);
  await schedule.stop();
  await heal(world);
  isOver.abort();
  await load;
  await served('In the end');
  assert.ok(statuses.has(200) && statuses.size > 1, `only ${[...statuses]}`);
  assert.ok((await world.spoken()) > 6);
  assert.deepEqual(
    (await world.processor.sessions()).map(({ isPaid, takenBackCents }) => [isPaid, takenBackCents]),
    [[true, 0]],
  );
  assert.ok((await world.audioObjects()).size >= 0);
});
