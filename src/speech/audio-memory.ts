/** At this multiple of the bound, the caller with the most unread audio is given up. */
const GIVE_UP_AT = 2;

export interface Share {
  /** @param bytes negative for bytes that were read */
  add(bytes: number): void;
  release(): void;
}

/** Counts audio that callers have not read. At the bound no new work starts (R55); at twice, the largest is dropped. */
export class AudioMemory {
  readonly #maxBytes: number;
  readonly #holders = new Set<{ bytes: number; giveUp?: (() => void) | undefined }>();
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

  /** @param giveUp drops everything counted here and releases the share; omit it for work that ends soon */
  share(giveUp?: () => void): Share {
    const holder = { bytes: 0, giveUp };
    this.#holders.add(holder);
    return {
      add: (bytes) => {
        if (!this.#holders.has(holder)) return;
        holder.bytes += bytes;
        this.#bytes += bytes;
        if (bytes > 0 && this.#bytes > this.#maxBytes * GIVE_UP_AT) this.#giveUpLargest();
      },
      release: () => {
        if (this.#holders.delete(holder)) this.#bytes -= holder.bytes;
      },
    };
  }

  #giveUpLargest(): void {
    const slow = [...this.#holders].filter(({ giveUp }) => giveUp).sort((one, other) => other.bytes - one.bytes);
    const bytes = slow.reduce((sum, holder) => sum + holder.bytes, 0);
    if (bytes > this.#maxBytes * GIVE_UP_AT) slow[0]?.giveUp?.();
  }
}
