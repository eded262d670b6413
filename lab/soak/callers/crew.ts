import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.ts';
import { SETUP, type Told } from '../told.ts';
import type { Service } from '../world/world.ts';
import { openCard, openJob } from './card.ts';
import { Line, type Observe } from './line.ts';
import { type Customer, type Open, Operation, type Outcome } from './operation.ts';
import { openPrepaid } from './prepaid.ts';
import { openClawback, openTopUp } from './top-up.ts';
import { openDeposit, openDirect } from './usdc.ts';

/** Kinds of callers and their default number. The chain and the checkout are slower than cards. */
const KINDS: readonly (readonly [name: string, share: number, open: Open])[] = [
  ['card', 9, openCard],
  ['prepaid', 9, openPrepaid],
  ['job', 6, openJob],
  ['direct', 6, openDirect],
  ['deposit', 3, openDeposit],
  ['top-up', 3, openTopUp],
  ['clawback', 2, openClawback],
];
const SHARES = KINDS.reduce((sum, [, share]) => sum + share, 0);
const LONGEST_OPENING = 8;

export interface CrewOptions {
  readonly world: Service;
  readonly seed: string;
  /** How many there are, with at least one of each kind. */
  readonly callers: number;
  readonly observe?: Observe | undefined;
  /** Milliseconds since the start of the run. */
  readonly now: () => number;
  readonly tell: (told: Told) => void;
}

interface Member {
  readonly name: string;
  readonly customer: Customer;
}

/** Callers of a run. Each runs its own closed loop. */
export class Crew {
  readonly #options: CrewOptions;
  readonly #lines: readonly [Line, Line];
  readonly #members: Member[] = [];

  private constructor(options: CrewOptions) {
    this.#options = options;
    const { observe, world } = options;
    const [one, two] = world.gateways;
    this.#lines = [new Line('gateway one', one, observe), new Line('gateway two', two, observe)];
  }

  /** Resolves when each caller has the credit, balance or coins that it needs. */
  static async open(options: CrewOptions): Promise<Crew> {
    const crew = new Crew(options);
    const names = KINDS.flatMap(([kind, share, open]) => {
      const length = Math.max(1, Math.round((share * options.callers) / SHARES));
      return Array.from({ length }, (_, index) => ({ name: `${kind} ${index + 1}`, open }));
    });
    while (names.length > 0) {
      const opening = names.splice(0, LONGEST_OPENING);
      crew.#members.push(...(await Promise.all(opening.map(({ name, open }) => crew.#begin(name, open)))));
    }
    return crew;
  }

  /** Runs operations until the signal, then waits for those in progress. */
  async work(isOver: AbortSignal): Promise<void> {
    await Promise.all(this.#members.map((member) => this.#loop(member, isOver)));
  }

  close(): void {
    for (const line of this.#lines) line.close();
  }

  async #begin(name: string, open: Open): Promise<Member> {
    const { world, seed } = this.#options;
    const operation = this.#operation(name, SETUP);
    const from = this.#options.now();
    const key = createHash('sha256').update(`wallet of ${name}, ${seed}`).digest();
    const { customer, bought } = await open({ world, operation, key });
    if (bought) this.#tell(name, SETUP, from, operation, bought);
    return { name, customer };
  }

  async #loop({ name, customer }: Member, isOver: AbortSignal): Promise<void> {
    for (let number = 0; !isOver.aborted; number++) {
      const operation = this.#operation(name, number);
      const pauseMs = operation.random.between(0, customer.longestPauseMs);
      const from = this.#options.now();
      const outcome = await customer.buy(operation);
      this.#tell(name, number, from, operation, outcome);
      await sleep(pauseMs);
    }
  }

  #operation(name: string, number: number): Operation {
    return new Operation(new Random(this.#options.seed, name, number), this.#lines);
  }

  #tell(caller: string, number: number, from: number, operation: Operation, outcome: Outcome): void {
    const { requests, traceIds, wrong, served } = operation;
    this.#options.tell({
      ...{ caller, number, from, until: this.#options.now(), requests },
      ...outcome,
      keys: { traceIds, ...outcome.keys },
      ...(served && { at: served.at, servedBy: served.by }),
      ...(wrong !== undefined && { wrong }),
    });
  }
}
