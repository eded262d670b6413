import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { createLogger } from '../../src/observability/logger.ts';
import { startChild, startCommand } from '../support/child.ts';
import { until } from '../support/until.ts';

interface Line {
  readonly time: string;
  readonly name: string;
  readonly number: number;
  readonly msg: string;
}

const WRITER = 'test/observability/log-writer.ts';
const COUNT = 1_234;
/** Far more than what a line waits for company, for a busy machine. */
const MOMENT_MS = 1_000;

/** The lines of the log in an output: all that begin like one are whole, but for an unfinished last one. */
const linesOf = (output: string): Line[] =>
  output
    .split('\n')
    .slice(0, -1)
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

const write = (t: Test, count: number, end: string) => startChild(t, WRITER, {}, ['one', String(count), end]);

/** All lines of a writer are there, in order, each as it was written. */
function assertComplete(lines: readonly Line[], name: string, count: number): void {
  const own = lines.filter((line) => line.name === name);
  assert.deepEqual(
    own.map(({ number, msg }) => [number, msg.length]),
    Array.from({ length: count }, (_, number) => [number, (number * 37) % 400]),
  );
}

for (const [what, end, code] of [
  ['comes to its end', 'end', 0],
  ['calls process.exit', 'exit', 3],
  ['throws what nobody catches', 'throw', 1],
  ['rejects what nobody catches', 'reject', 1],
] as const) {
  test(`all lines are written when a process ${what}`, async (t) => {
    const child = write(t, COUNT, end);
    assert.equal(await child.ended(), code);
    await until(() => child.process.stdout?.readableEnded === true);
    assertComplete(linesOf(child.output()), 'one', COUNT);
  });
}

test('a line arrives within a moment, though nothing comes after it', async (t) => {
  const child = write(t, 1, 'stay');
  await until(() => linesOf(child.output()).length === 1);
  const [line] = linesOf(child.output()) as [Line];
  const took = Date.now() - Date.parse(line.time);
  assert.ok(took < MOMENT_MS, `${took} ms`);
});

test('of a process that is killed, the lines of the last moment are lost at most', async (t) => {
  const child = write(t, COUNT, 'tick');
  await until(() => linesOf(child.output()).length > COUNT + 100);
  const killedAt = Date.now();
  await child.stop('SIGKILL');
  await until(() => child.process.stdout?.readableEnded === true);
  const lines = linesOf(child.output());
  assertComplete(lines.slice(0, COUNT), 'one', COUNT);
  const lost = killedAt - Date.parse(lines.at(-1)?.time as string);
  assert.ok(lost < MOMENT_MS, `${lost} ms`);
});

test('writers that share a pipe do not break each other’s lines', async (t) => {
  const writers = ['one', 'two', 'three'];
  const meeting = await mkdtemp(join(tmpdir(), 'speechgate-writers-'));
  t.teardown(() => rm(meeting, { recursive: true }));
  const start = (name: string) =>
    `${process.execPath} --import tsx ${WRITER} ${name} ${5 * COUNT} end ${meeting} ${writers.length}`;
  // A pipe of the shell's, since those that Node makes are sockets.
  const child = startCommand(t, ['sh', '-c', `(${writers.map(start).join(' & ')} & wait) | cat`], { isGroup: true });
  assert.equal(await child.ended(), 0);
  const lines = linesOf(child.output());
  for (const name of writers) assertComplete(lines, name, 5 * COUNT);
  const changes = lines.filter(({ name }, index) => lines[index - 1]?.name !== name).length;
  assert.ok(changes > writers.length, 'they did write at the same time');
});

test('a line of the log holds nothing that a terminal obeys, and has the same value', async () => {
  const hostile = 'x\u001b[2J\u009b31m\u202eysp\u2028\u007f\ud83d\ude00é\n';
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => lines.push(line) });
  log.error({ err: new Error(hostile), userAgent: hostile }, hostile);
  const [line = ''] = lines;
  assert.match(line, /^[\x20-\x7e]+\n$/);
  const { err, userAgent, msg } = JSON.parse(line);
  assert.deepEqual([err.message, userAgent, msg], [hostile, hostile, hostile]);
});
