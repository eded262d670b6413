import { createReadStream, createWriteStream, type WriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { finished } from 'node:stream/promises';
import { FLOWS, type Flow, type Told } from './told.ts';

/** What callers were told, a line of JSON for each operation in one file: memory has the counts only. */
export class ToldLog {
  readonly path: string;
  readonly #file: WriteStream;
  readonly #operations = new Map<Flow, number>(FLOWS.map((flow) => [flow, 0]));
  #requests = 0;
  #count = 0;

  /** @param path of a file that does not exist yet */
  constructor(path: string) {
    this.path = path;
    this.#file = createWriteStream(path, { flags: 'wx' });
  }

  readonly add = (told: Told): void => {
    this.#count += 1;
    this.#requests += told.requests;
    this.#operations.set(told.flow, (this.#operations.get(told.flow) ?? 0) + 1);
    const line = { ...told, amountMicroUsd: String(told.amountMicroUsd), at: told.at ?? Date.now() };
    this.#file.write(`${JSON.stringify(line)}\n`);
  };

  get count(): number {
    return this.#count;
  }

  get requests(): number {
    return this.#requests;
  }

  /** Resolves when all is in the file. */
  async close(): Promise<void> {
    this.#file.end();
    await finished(this.#file);
  }
}

/** The operations of such a file, in the order of their ends, each with the time of that in Unix milliseconds. */
export async function* readTold(path: string): AsyncGenerator<Told & { readonly at: number }> {
  for await (const line of createInterface({ input: createReadStream(path) })) {
    const told = JSON.parse(line);
    yield { ...told, amountMicroUsd: BigInt(told.amountMicroUsd) };
  }
}
