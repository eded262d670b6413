import { Gauge, type Registry } from 'prom-client';

/** What a gauge is about: several processes have as much together as each by itself, or all of them see the same. */
export type GaugeScope = 'process' | 'shared';

/** One value, or one by each value of the gauge's label. */
export type GaugeValue = number | Readonly<Record<string, number>>;

/** How long a scrape waits for values that have to be read; without them it answers all the same. */
const READ_TIMEOUT_MS = 1_000;

/** Gauges whose values are read when they are scraped. */
export class ReadGauges {
  readonly #registry: Registry;
  readonly #reads: (() => Promise<void>)[] = [];

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** @param help what each gauge tells, by name */
  add<Name extends string>(
    scope: GaugeScope,
    help: Record<Name, string>,
    read: () => Promise<Record<Name, GaugeValue>>,
    label?: string,
  ): void {
    const shared = {
      aggregator: scope === 'shared' ? ('max' as const) : ('sum' as const),
      labelNames: label === undefined ? [] : [label],
      registers: [this.#registry],
    };
    const gauges = (Object.entries(help) as [Name, string][]).map(
      ([name, text]) => [name, new Gauge({ name, help: text, ...shared })] as const,
    );
    let reading: Promise<Record<Name, GaugeValue>> | undefined;
    this.#reads.push(async () => {
      reading ??= read().finally(() => {
        reading = undefined;
      });
      const values = await withinTime(reading);
      for (const [name, gauge] of gauges) show(gauge, label, values?.[name]);
    });
  }

  async read(): Promise<void> {
    await Promise.all(this.#reads.map((read) => read()));
  }
}

function show(gauge: Gauge, label: string | undefined, value: GaugeValue | undefined): void {
  if (typeof value === 'number') {
    gauge.set(value);
  } else if (label === undefined) {
    gauge.remove();
  } else {
    // Also of what has no value any more.
    gauge.reset();
    for (const [labelled, number] of Object.entries(value ?? {})) gauge.set({ [label]: labelled }, number);
  }
}

/** The value, or undefined when there is none or it takes too long. */
async function withinTime<T>(value: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, READ_TIMEOUT_MS, undefined);
  });
  return Promise.race([value.catch(() => undefined), timeout]).finally(() => clearTimeout(timer));
}
