import type { Challenge } from './challenge.ts';

/** Stands for the amount where all else of a challenge is written. */
const AMOUNT = '@amount@';

export interface WrittenChallenge {
  /** As PAYMENT-REQUIRED carries it. */
  readonly header: string;
  /** JSON of what was made around it. */
  readonly body: string;
}

/**
 * The texts of challenges that differ by their amount only. They are written once, and an amount is put into them:
 *
 *     JSON    before   | amount |   after; in the body more than once
 *     Base64  whole groups of three bytes before | some bytes around the amount | whole groups after it
 */
export class ChallengeTemplate {
  /** What stands before, between and after the amounts. */
  readonly #body: readonly string[];
  /** Base64 of all bytes before the amount but those of an unfinished group of three, which are text. */
  readonly #header: {
    readonly before: string;
    readonly rest: string;
    readonly after: string;
    readonly tails: string[];
  };

  /**
   * @param make makes the challenge for an amount
   * @param enclose puts it into the body of its answer
   */
  constructor(make: (amount: string) => Challenge, enclose: (challenge: Challenge) => object) {
    const challenge = make(AMOUNT);
    this.#body = JSON.stringify(enclose(challenge)).split(AMOUNT);
    const [before = '', after = '', ...more] = JSON.stringify(challenge).split(AMOUNT);
    if (after === '' || more.length > 0) throw new Error('a challenge tells its amount once');
    const bytes = Buffer.from(before);
    const whole = bytes.length - (bytes.length % 3);
    const afterBytes = Buffer.from(after);
    this.#header = {
      before: bytes.subarray(0, whole).toString('base64'),
      // Both are of the quotes and names around the amount, a byte a character.
      rest: bytes.subarray(whole).toString(),
      after,
      tails: [0, 1, 2].map((from) => afterBytes.subarray(from).toString('base64')),
    };
  }

  /** @param amount decimal digits */
  write(amount: string): WrittenChallenge {
    const { before, rest, after, tails } = this.#header;
    const missing = (3 - ((rest.length + amount.length) % 3)) % 3;
    const middle = Buffer.from(rest + amount + after.slice(0, missing), 'latin1').toString('base64');
    return {
      header: before + middle + tails[missing],
      body: this.#body.join(amount),
    };
  }
}
