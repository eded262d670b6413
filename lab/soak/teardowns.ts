/** Cleanup actions of a run, in reverse order. */
export class Teardowns {
  readonly #actions: (() => unknown)[] = [];

  readonly teardown = (action: () => unknown): void => {
    this.#actions.push(action);
  };

  /** Runs all actions, then throws the first error. */
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
