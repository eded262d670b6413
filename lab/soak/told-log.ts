import { createReadStream, createWriteStream, type WriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { finished } from 'node:stream/promises';
import type { Told } from './told.ts';

/** Writes the callers' records to a file, one line of JSON for each operation. Memory holds only the counts. */
export class ToldLog {
  readonly path: string;
  readonly #file: WriteStream;
  #requests = 0;
  #count = 0;

  readonly #wallTime: (ms: number) => number;

  /**
   * @param path must not exist yet
   * @param wallTime converts a time of the run to Unix milliseconds. A second clock could read later than the end.
   */
  constructor(path: string, wallTime: (ms: number) => number) {
    this.path = path;
    this.#wallTime = wallTime;
    this.#file = createWriteStream(path, { flags: 'wx' });
  }

  readonly add = (told: Told): void => {
    this.#count += 1;
    this.#requests += told.requests;
    const line = { ...told, amountMicroUsd: String(told.amountMicroUsd), at: told.at ?? this.#wallTime(told.until) };
    this.#file.write(`${JSON.stringify(line)}\n`);
  };

  get count(): number {
    return this.#count;
  }

  get requests(): number {
    return this.#requests;
  }

  async close(): Promise<void> {
    this.#file.end();
    await finished(this.#file);
  }
}

/** Operations in the order of their ends, with the time of the audio or the end in Unix milliseconds. */
export async function* readTold(path: string): AsyncGenerator<Told & { readonly at: number }> {
  for await (const line of createInterface({ input: createReadStream(path) })) {
    const told = JSON.parse(line);
    yield { ...told, amountMicroUsd: BigInt(told.amountMicroUsd) };
  }
}
