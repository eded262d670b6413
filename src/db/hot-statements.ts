import { AsyncResource } from 'node:async_hooks';
import type { CompiledQuery } from 'kysely';
import type { Database } from './database.ts';
import { isConnectionError } from './database-errors.ts';

// Statements of every request: compiled once, or shared by concurrent requests.

/** Stands for a value while the statement is built, since no request's values are known then. */
class Placeholder {
  constructor(readonly name: string) {}
}

/**
 * A statement that is built and compiled only once, at its first execution: for those of every request.
 * @param build gets a placeholder for each value: it must pass them on as parameters, and not look at them
 */
export function compiledOnce<Values extends object, Row>(
  build: (db: Database, values: Values) => { compile(db: Database): CompiledQuery<Row> },
): (db: Database, values: Values) => Promise<Row[]> {
  // `values.name` gives a placeholder of that name, which Kysely puts among the parameters.
  const placeholders = new Proxy({}, { get: (_, name) => new Placeholder(String(name)) }) as Values;
  let compiled: CompiledQuery<Row> | undefined;
  return async (db, values) => {
    compiled ??= build(db, placeholders).compile(db);
    const parameters = compiled.parameters.map((parameter) =>
      parameter instanceof Placeholder ? values[parameter.name as keyof Values] : parameter,
    );
    return (await db.executeQuery<Row>({ ...compiled, parameters })).rows;
  };
}

const MAX_ITEMS = 64;

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
  /** Where the item came from, for a tracer. */
  readonly origin: AsyncResource;
}

interface GroupedStatementOptions<Item, Result> {
  readonly run: (items: readonly Item[]) => Promise<readonly Result[]>;
  /** Items with equal keys never share a statement, for example if both change the same row. By default any may. */
  readonly keyOf?: (item: Item) => unknown;
  /** How long the first item waits for others, in ms; by default one turn of the event loop. */
  readonly groupWithinMs?: number;
}

/** Combines items of concurrent requests into one statement, so that they share its round trip and commit. */
export class GroupedStatement<Item, Result> {
  readonly #options: GroupedStatementOptions<Item, Result>;
  #waiting: Waiting<Item, Result>[] = [];
  #isBusy = false;

  constructor(options: GroupedStatementOptions<Item, Result>) {
    this.#options = options;
  }

  execute(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject, origin: new AsyncResource('GroupedStatement') });
      if (this.#isBusy) return;
      this.#isBusy = true;
      if (this.#options.groupWithinMs === undefined) setImmediate(() => this.#runAll());
      else setTimeout(() => this.#runAll(), this.#options.groupWithinMs);
    });
  }

  async #runAll(): Promise<void> {
    while (this.#waiting.length > 0) await this.#runGroup(this.#nextGroup());
    this.#isBusy = false;
  }

  #nextGroup(): Waiting<Item, Result>[] {
    const keys = new Set<unknown>();
    const group: Waiting<Item, Result>[] = [];
    this.#waiting = this.#waiting.filter((waiting) => {
      const key = this.#options.keyOf?.(waiting.item) ?? waiting;
      if (group.length === MAX_ITEMS || keys.has(key)) return true;
      keys.add(key);
      group.push(waiting);
      return false;
    });
    return group;
  }

  async #runGroup(group: readonly Waiting<Item, Result>[]): Promise<void> {
    const [{ origin }] = group as [Waiting<Item, Result>];
    try {
      const results = await origin.runInAsyncScope(() => this.#options.run(group.map(({ item }) => item)));
      for (const [index, { resolve }] of group.entries()) resolve(results[index] as Result);
    } catch (error) {
      // The whole statement failed, so each item is retried alone: only the faulty one fails.
      if (group.length > 1 && !isConnectionError(error))
        await Promise.all(group.map((waiting) => this.#runGroup([waiting])));
      else for (const { reject } of group) reject(error);
    }
  }
}
