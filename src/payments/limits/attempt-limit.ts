import type { Bucket } from '../../db/rate-window.ts';
import type { RollingWindow, Slot } from './rolling-window.ts';

const RETRY_SECONDS = 1;

interface BegunAttempt {
  readonly outcome: 'begun';
  readonly slot: Slot;
  succeed(): void;
  fail(): Promise<Slot | undefined>;
}

/** Counts only failed attempts. Running ones count as failed, so that both together never exceed the window. */
export class AttemptLimit {
  readonly #window: RollingWindow;
  readonly #underWay = new Map<string, number>();

  constructor(window: RollingWindow) {
    this.#window = window;
  }

  async begin(bucket: Bucket): Promise<BegunAttempt | { readonly outcome: 'refused'; readonly slot: Slot }> {
    const key = `${bucket.scope} ${bucket.key}`;
    // An earlier attempt counts in `place` while it runs, and in the read below once it has failed.
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
