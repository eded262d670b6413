import type { Bucket, RollingWindow } from './rolling-window.ts';
import type { Slot } from './slot.ts';

/** When attempts that are under way, not failures, fill the window: they soon end. */
const RETRY_SECONDS = 1;

/** What becomes of the attempt is told once, by one of these. */
export interface BegunAttempt {
  readonly outcome: 'begun';
  /** The bucket as the attempt found it. */
  readonly slot: Slot;
  /** The attempt costs nothing. */
  succeed(): void;
  /** Takes a slot, and tells the bucket after it; undefined when the attempt had succeeded. */
  fail(): Promise<Slot | undefined>;
}

/**
 * Counts attempts that cost work only when they fail. A failure takes a slot of the bucket's persistent window. One that
 * is under way counts as if it had failed, in this process: so at any time those that have failed within the window, and
 * those under way here, are together no more than the window allows.
 */
export class AttemptLimit {
  readonly #window: RollingWindow;
  /** Attempts under way by bucket; there are no others, so the map is as small as what runs. */
  readonly #underWay = new Map<string, number>();

  constructor(window: RollingWindow) {
    this.#window = window;
  }

  /** Begins an attempt, or tells when there can be one. */
  async begin(bucket: Bucket): Promise<BegunAttempt | { readonly outcome: 'refused'; readonly slot: Slot }> {
    const key = `${bucket.scope} ${bucket.key}`;
    // Whoever came before and is still under way is in `place`, or, once it has failed, in what is read after this.
    const place = (this.#underWay.get(key) ?? 0) + 1;
    const refused = (seconds: number) => ({ outcome: 'refused', slot: this.#window.refuse(bucket, seconds) }) as const;
    if (place > this.#window.max) return refused(RETRY_SECONDS);
    this.#underWay.set(key, place);
    let isOpen = true;
    const end = () => {
      if (!isOpen) return;
      isOpen = false;
      const others = (this.#underWay.get(key) ?? 0) - 1;
      if (others > 0) this.#underWay.set(key, others);
      else this.#underWay.delete(key);
    };
    try {
      const slot = await this.#window.read(bucket);
      if (place > slot.remaining) {
        end();
        return refused(slot.allowed ? RETRY_SECONDS : slot.resetSeconds);
      }
      return {
        outcome: 'begun',
        slot,
        succeed: end,
        fail: async () => (isOpen ? this.#window.take(bucket).finally(end) : undefined),
      };
    } catch (error) {
      end();
      throw error;
    }
  }
}
