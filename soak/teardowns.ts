/** What has to go at the end of a run, last thing first. */
export class Teardowns {
  readonly #actions: (() => unknown)[] = [];

  readonly teardown = (action: () => unknown): void => {
    this.#actions.push(action);
  };

  /** Does all of it, whatever fails, and throws the first failure. */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (const action of this.#actions.splice(0).reverse()) {
      try {
        await action();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}
