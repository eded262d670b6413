import assert from 'node:assert/strict';
import type { CompiledQuery } from 'kysely';
import { test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { fragment, statement } from '../../src/db/statement.ts';

/** What the database would be sent. */
async function sent(query: ReturnType<typeof statement>): Promise<[text: string, parameters: readonly unknown[]]> {
  const sentence: CompiledQuery[] = [];
  const db = { executeQuery: async (compiled: CompiledQuery) => sentence.push(compiled) } as unknown as Database;
  await query.execute(db);
  const [compiled] = sentence;
  return [compiled?.sql ?? '', compiled?.parameters ?? []];
}

test('values become parameters, in the order of the text, also those of fragments in fragments', async () => {
  const inner = fragment`c = ${3} and ${fragment`d = ${4}`}`;
  assert.deepEqual(await sent(statement`select ${1} where b = ${2} and ${inner} and e = ${5}`), [
    'select $1 where b = $2 and c = $3 and d = $4 and e = $5',
    [1, 2, 3, 4, 5],
  ]);
});

test('one place in the code that is given other fragments, or a value instead of one, sends another text', async () => {
  const column = fragment`column`;
  const at = (first: unknown, second: unknown) => sent(statement`select ${first}, ${second}`);
  for (let again = 0; again < 2; again++) {
    assert.deepEqual(await at(column, 1), ['select column, $1', [1]]);
    assert.deepEqual(await at(1, column), ['select $1, column', [1]]);
    assert.deepEqual(await at(fragment`other`, 2), ['select other, $1', [2]]);
    assert.deepEqual(await at(1, 2), ['select $1, $2', [1, 2]]);
  }
});
