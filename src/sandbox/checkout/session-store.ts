import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ownFolder, replaceOwnFile } from '../../lib/private-files.ts';
import type { Session } from './session.ts';

/** An answer that is given again to a call with the same Idempotency-Key. */
export interface Reply {
  readonly key: string;
  /** Of the call: a hash of method, path and body. */
  readonly fingerprint: string;
  /** Unix seconds. */
  readonly created: number;
  readonly body: unknown;
}

export interface State {
  readonly port: number;
  /** Oldest first. */
  readonly sessions: readonly Session[];
  readonly replies: readonly Reply[];
}

/**
 * The state in one JSON file. Changes happen one after the other, and each is on disk before anybody can see it, so
 * that what was answered survives a kill.
 */
export class Store {
  readonly #file: string;
  #state: State;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(file: string, state: State) {
    this.#file = file;
    this.#state = state;
  }

  static async open(file: string): Promise<Store> {
    await ownFolder(dirname(file));
    return new Store(file, (await readState(file)) ?? { port: 0, sessions: [], replies: [] });
  }

  get state(): State {
    return this.#state;
  }

  findSession(id: string): Session | undefined {
    return this.#state.sessions.find((session) => session.id === id);
  }

  /** Replaces the state with what `change` makes of it, unless it returns that same state; passes the result on. */
  update<Result>(change: (state: State) => { state: State; result: Result }): Promise<Result> {
    const done = this.#queue.then(async () => {
      const { state, result } = change(this.#state);
      if (state !== this.#state) {
        await replaceOwnFile(this.#file, JSON.stringify(state));
        this.#state = state;
      }
      return result;
    });
    this.#queue = done.catch(() => undefined);
    return done;
  }
}

async function readState(file: string): Promise<State | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${file} is damaged. Remove it to start without checkout sessions.`);
  }
}
