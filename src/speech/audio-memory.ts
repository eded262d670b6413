/** Bytes of audio that may wait in memory for callers before new work is refused. */
export const MAX_WAITING_BYTES = 256 * 1024 * 1024;
/** Beyond this many times the bound, what waits the most is given up: audio of work that was taken on before it. */
const GIVE_UP_AT = 2;

/** One caller's share of the memory. */
export interface Share {
  /** Counts bytes that have come, or negative ones that have gone. */
  add(bytes: number): void;
  /** Counts nothing of it any more. */
  release(): void;
}

interface Holder {
  bytes: number;
  readonly giveUp: () => void;
}

/**
 * Counts the audio of all callers of this process that was spoken and not yet taken. It is bounded in all, whoever
 * doesn't read: at the bound no new work is taken on (R55), and at twice the bound, the caller for whom the most waits
 * counts as gone.
 */
export class AudioMemory {
  readonly #maxBytes: number;
  readonly #holders = new Set<Holder>();
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
    const holder: Holder = { bytes: 0, giveUp };
    this.#holders.add(holder);
    return {
      add: (bytes) => {
        if (!this.#holders.has(holder)) return;
        holder.bytes += bytes;
        this.#bytes += bytes;
        if (this.#bytes > this.#maxBytes * GIVE_UP_AT) this.#largest().giveUp();
      },
      release: () => {
        if (this.#holders.delete(holder)) this.#bytes -= holder.bytes;
      },
    };
  }

  #largest(): Holder {
    return [...this.#holders].reduce((largest, holder) => (holder.bytes > largest.bytes ? holder : largest));
  }
}
