import { createHash } from 'node:crypto';

const WORD = 2 ** 32;

/**
 * Random numbers that depend only on a seed and a name, so the same name gives the same numbers in every run. An
 * operation's name contains its caller and its number, so a run can start in the middle.
 */
export class Random {
  readonly #name: string;
  #drawn = 0;

  constructor(seed: string, ...names: readonly (string | number)[]) {
    this.#name = [seed, ...names].join('/');
  }

  /** In [0, 1). */
  share(): number {
    const digest = createHash('sha256')
      .update(`${this.#name}#${this.#drawn++}`)
      .digest();
    return digest.readUInt32BE() / WORD;
  }

  /** Both ends included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.share() * (most - least + 1));
  }

  chance(share: number): boolean {
    return this.share() < share;
  }

  pick<T>(choices: readonly T[]): T {
    const picked = choices[this.between(0, choices.length - 1)];
    if (picked === undefined) throw new Error('There is nothing to pick from.');
    return picked;
  }

  weighted<T>(choices: readonly (readonly [weight: number, choice: T])[]): T {
    let left = this.share() * choices.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, choice] of choices) {
      left -= weight;
      if (left < 0) return choice;
    }
    throw new Error('There is nothing to pick from.');
  }
}
