import { type TracePlace, tracing } from '../observability/tracing.ts';
import { isAway } from './database-errors.ts';

/** Items that one statement takes at most. */
const MAX_ITEMS = 64;

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
  /** Where the item comes from, while that is traced. */
  readonly place: TracePlace | undefined;
}

export interface GroupedStatementOptions<Item, Result> {
  /** Runs the statement for some items, and tells what became of each, in their order. */
  readonly run: (items: readonly Item[]) => Promise<readonly Result[]>;
  /** What two items of one statement must not have in common, such as the row that both change. */
  readonly keyOf: (item: Item) => unknown;
}

/**
 * A statement that takes what several requests ask at the same moment, so that they share its round trip and its commit
 * (group commit). What comes while it runs waits for its end, and goes together then; nobody waits for company.
 */
export class GroupedStatement<Item, Result> {
  readonly #options: GroupedStatementOptions<Item, Result>;
  #waiting: Waiting<Item, Result>[] = [];
  /** It runs, or will when the requests have been read that have arrived by now. */
  #isBusy = false;

  constructor(options: GroupedStatementOptions<Item, Result>) {
    this.#options = options;
  }

  /** @throws what the statement threw for this item alone, or for all of them while the database is away */
  execute(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject, place: tracing()?.place() });
      if (this.#isBusy) return;
      this.#isBusy = true;
      setImmediate(() => this.#runAll());
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
      const key = this.#options.keyOf(waiting.item);
      if (group.length === MAX_ITEMS || keys.has(key)) return true;
      keys.add(key);
      group.push(waiting);
      return false;
    });
    return group;
  }

  #run(group: readonly Waiting<Item, Result>[]): Promise<readonly Result[]> {
    const run = () => this.#options.run(group.map(({ item }) => item));
    return (
      tracing()?.share(
        group.flatMap(({ place }) => place ?? []),
        run,
      ) ?? run()
    );
  }

  async #runGroup(group: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await this.#run(group);
      for (const [index, { resolve }] of group.entries()) resolve(results[index] as Result);
    } catch (error) {
      // Nothing of it was done, so that the item whose fault it is can be left to itself.
      if (group.length > 1 && !isAway(error)) await Promise.all(group.map((waiting) => this.#runGroup([waiting])));
      else for (const { reject } of group) reject(error);
    }
  }
}
