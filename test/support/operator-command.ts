import assert from 'node:assert/strict';
import { Console } from 'node:console';
import { Readable, Writable } from 'node:stream';
import { operatorCommands } from '../../src/operators/cli/commands.ts';
import type { CommandRun } from './speechgate.ts';

/** Runs an operators' command in this process, with nothing in its environment but what is given, and no terminal. */
export async function operatorCommand(
  env: Record<string, string>,
  name: string,
  ...args: string[]
): Promise<CommandRun> {
  const load = operatorCommands[name]?.load ?? assert.fail(`There is no command ${name}.`);
  const command = await load();
  const [stdout, stderr] = [new Printed(), new Printed()];
  const context = { env, console: new Console(stdout, stderr), stdin: Readable.from([]), stdout, stderr };
  const code = await command(args, context);
  const [out, err] = [stdout.bytes.toString(), stderr.bytes.toString()];
  return { code, out, err, output: out + err, bytes: stdout.bytes };
}

/** Each of these commands ends with its exit code and its message, and without a stack. */
export async function assertEnds(
  run: (...words: string[]) => Promise<CommandRun>,
  ends: readonly (readonly [words: readonly string[], code: number, message: RegExp])[],
): Promise<void> {
  for (const [words, code, message] of ends) {
    const ended = await run(...words);
    assert.equal(ended.code, code, ended.output);
    assert.match(ended.err, message);
    assert.doesNotMatch(ended.err, /^\s+at /m);
  }
}

class Printed extends Writable {
  readonly #chunks: Buffer[] = [];

  get bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }
}
