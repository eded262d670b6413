import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'tap';
import { GroupedStatement } from '../../src/db/hot-statements.ts';

interface Item {
  readonly key: string;
  readonly number: number;
}

/** A statement that stays under way until a test ends it. */
class Statements {
  readonly groups: string[] = [];
  readonly #ends: (() => void)[] = [];
  /** What the database makes of each statement; undefined lets it succeed. */
  failure: (items: readonly Item[]) => Error | undefined = () => undefined;
  readonly grouped = new GroupedStatement({
    run: async (items: readonly Item[]) => {
      this.groups.push(items.map(({ key }) => key).join(''));
      await new Promise<void>((end) => this.#ends.push(end));
      const error = this.failure(items);
      if (error) throw error;
      return items.map(({ key, number }) => `${key}${number}`);
    },
    keyOf: ({ key }) => key,
  });

  /** What comes of items of these keys, in their order, of which all are asked for at once. */
  async ask(keys: string): Promise<string[]> {
    const results = await Promise.allSettled([...keys].map((key, number) => this.grouped.execute({ key, number })));
    return results.map((result) => (result.status === 'fulfilled' ? result.value : result.reason.message));
  }

  /** Ends the statements that are under way; what has waited for that is under way then. */
  async end(): Promise<void> {
    for (const end of this.#ends.splice(0)) end();
    await nextTurn();
  }

  async endAll(): Promise<void> {
    while (this.#ends.length > 0) await this.end();
  }
}

const CASES: readonly { title: string; before: string; asked: string; groups: readonly string[] }[] = [
  { title: 'a single item runs alone at once', before: '', asked: 'a', groups: ['a'] },
  { title: 'items requested at the same moment run together', before: '', asked: 'abc', groups: ['abc'] },
  {
    title: 'items requested during a statement run together after it',
    before: 'a',
    asked: 'bcd',
    groups: ['a', 'bcd'],
  },
  { title: 'items with equal keys never share a statement', before: '', asked: 'aaa', groups: ['a', 'a', 'a'] },
  { title: 'equal keys do not delay other keys', before: '', asked: 'aabac', groups: ['abc', 'a', 'a'] },
  { title: 'an item waits for a running item with the same key', before: 'a', asked: 'ab', groups: ['a', 'ab'] },
];

/** What comes of items that succeed. */
const succeeded = (keys: string) => [...keys].map((key, number) => `${key}${number}`);

for (const { title, before, asked, groups } of CASES) {
  test(title, async (t) => {
    const statements = new Statements();
    const first = statements.ask(before);
    await nextTurn();
    t.equal(statements.groups.length, before.length, 'nobody waits for company');
    const then = statements.ask(asked);
    await nextTurn();
    await statements.endAll();
    t.strictSame(statements.groups, groups);
    t.strictSame([await first, await then], [succeeded(before), succeeded(asked)]);
  });
}

test('a statement takes the earliest 64 items, and the rest come next', async (t) => {
  const statements = new Statements();
  const keys = String.fromCodePoint(...Array.from({ length: 150 }, (_, number) => 0x4e00 + number));
  const told = statements.ask(keys);
  await nextTurn();
  await statements.endAll();
  t.strictSame(statements.groups, [keys.slice(0, 64), keys.slice(64, 128), keys.slice(128)]);
  t.strictSame(await told, succeeded(keys));
});

test('items with one key finish in request order', async (t) => {
  const statements = new Statements();
  const ended: string[] = [];
  const results = [...'abab'].map(async (key, number) => {
    ended.push(await statements.grouped.execute({ key, number }));
  });
  await nextTurn();
  await statements.endAll();
  await Promise.all(results);
  t.strictSame(ended, ['a0', 'b1', 'a2', 'b3']);
});

// XX000 is what pgpool says of a server that is lost in the middle of a commit, which may have been done.
test('while the database is unavailable, every item fails without a retry', async (t) => {
  for (const code of ['ECONNREFUSED', 'XX000']) {
    const statements = new Statements();
    statements.failure = () => Object.assign(new Error('refused'), { code });
    const told = statements.ask('abc');
    await nextTurn();
    await statements.endAll();
    t.strictSame(statements.groups, ['abc']);
    t.strictSame(await told, ['refused', 'refused', 'refused']);
  }
});

test('after an error, waiting and later items still run', async (t) => {
  const statements = new Statements();
  const failures = [new Error('once')];
  statements.failure = () => failures.pop();
  const first = statements.ask('a');
  await nextTurn();
  const waited = statements.ask('b');
  await statements.endAll();
  const later = statements.ask('c');
  await nextTurn();
  await statements.endAll();
  t.strictSame([await first, await waited, await later], [['once'], ['b0'], ['c0']]);
});
