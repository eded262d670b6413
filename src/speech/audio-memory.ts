import { Roster } from '../lib/roster.ts';

/** Bytes of audio that may wait in memory for callers before new work is refused. */
export const MAX_WAITING_BYTES = 256 * 1024 * 1024;
/** Beyond this many times the bound, what waits the most is given up: audio of work that was taken on before it. */
const GIVE_UP_AT = 2;

/** One caller's share of the memory. */
export class Share {
  readonly #memory: AudioMemory;
  /** Lets go of everything that is counted here, and releases the share. */
  readonly giveUp: () => void;
  readonly #forget: () => void;
  #bytes = 0;
  #isReleased = false;

  constructor(memory: AudioMemory, holders: Roster<Share>, giveUp: () => void) {
    this.#memory = memory;
    this.giveUp = giveUp;
    this.#forget = holders.add(this);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts bytes that have come, or negative ones that have gone. */
  add(bytes: number): void {
    if (this.#isReleased) return;
    this.#bytes += bytes;
    this.#memory.count(bytes);
  }

  /** Counts nothing of it any more. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#forget();
    this.#memory.count(-this.#bytes);
  }
}

/**
 * Counts the audio of all callers of this process that was spoken and not yet taken. It is bounded in all, whoever
 * doesn't read: at the bound no new work is taken on (R55), and at twice the bound, the caller for whom the most waits
 * counts as gone.
 */
export class AudioMemory {
  readonly #maxBytes: number;
  readonly #holders = new Roster<Share>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#maxBytes;
  }

  /** @param giveUp lets go of everything that is counted here, and releases the share */
  share(giveUp: () => void): Share {
    return new Share(this, this.#holders, giveUp);
  }

  /** Counts bytes of a share. */
  count(bytes: number): void {
    this.#bytes += bytes;
    if (bytes > 0 && this.#bytes > this.#maxBytes * GIVE_UP_AT) this.#largest().giveUp();
  }

  #largest(): Share {
    return [...this.#holders].reduce((largest, holder) => (holder.bytes > largest.bytes ? holder : largest));
  }
}
