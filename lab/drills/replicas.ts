import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startChild } from '../../test/support/child.ts';
import { until } from '../../test/support/until.ts';

const ASK_EVERY_MS = 50;
/** Several start at once, beside other tests that keep the machine busy. */
const START_TIMEOUT_MS = 240_000;

/** The BASE_URL of all of them. */
export const REPLICATED_URL = 'http://speechgate.test';

/** How one of them is started, where it differs from the others. */
export interface Start {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

interface Replica {
  readonly child: Child;
  readonly url: string;
  readonly readyUrl: string;
  isReady: boolean;
}

/**
 * Gateways that share a database, and a balancer in front of them that does nothing but to choose: the next one of those
 * whose `/readyz` said so lately.
 */
export class Replicas {
  readonly #t: Test;
  readonly #env: Record<string, string>;
  readonly #running = new Map<string, Replica>();
  #isOver = false;
  #turn = 0;

  constructor(t: Test, env: Record<string, string>) {
    this.#t = t;
    this.#env = { BASE_URL: REPLICATED_URL, ...env };
    t.teardown(() => {
      this.#isOver = true;
    });
  }

  /** Where the next one that is ready listens. */
  origin(): string {
    const ready = [...this.#running.values()].filter(({ isReady }) => isReady);
    const next = ready[this.#turn++ % ready.length];
    if (!next) throw new Error(`no gateway is ready:\n${this.output()}`);
    return next.url;
  }

  /** Starts one at ports of its own; resolves when it is ready. */
  async start(name: string, { args = [], env: own = {} }: Start = {}): Promise<void> {
    const [port, adminPort] = [await freePort(), await freePort()];
    const env = { ...this.#env, ...own, PORT: String(port), ADMIN_PORT: String(adminPort) };
    const child = startChild(this.#t, 'src/main.ts', env, [...args]);
    await child.printed(/listens on|runs jobs/, START_TIMEOUT_MS);
    const replica: Replica = {
      ...{ child, url: `http://127.0.0.1:${port}`, readyUrl: `http://127.0.0.1:${adminPort}/readyz` },
      isReady: false,
    };
    await until(() => isReady(replica), START_TIMEOUT_MS);
    replica.isReady = !args.includes('--role=worker');
    this.#running.set(name, replica);
    void this.#watch(replica);
  }

  /** Sends SIGTERM; tells the exit code. Throws if it ended before the balancer had learned that it is not ready. */
  async stop(name: string): Promise<number | null> {
    const replica = this.#running.get(name);
    const code = await replica?.child.stop();
    this.#running.delete(name);
    if (replica?.isReady) throw new Error(`${name} was ready until it ended`);
    return code ?? null;
  }

  /** What they have printed lately, for when something went wrong. */
  output(): string {
    return [...this.#running].map(([name, { child }]) => `${name}:\n${child.output().slice(-2000)}`).join('\n');
  }

  async #watch(replica: Replica): Promise<void> {
    while (replica.isReady && !this.#isOver) {
      await sleep(ASK_EVERY_MS);
      // It may have been told to leave meanwhile.
      if (!(await isReady(replica))) replica.isReady = false;
    }
  }
}

const isReady = ({ readyUrl }: Replica): Promise<boolean> =>
  fetch(readyUrl)
    .then(async (answer) => (await answer.text()) !== '' && answer.ok)
    .catch(() => false);
