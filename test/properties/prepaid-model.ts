import assert from 'node:assert/strict';
import type { Reply } from '../support/gateway.ts';

/** How an attempt to spend has ended, as its client knows it. */
export type End =
  /** 200: the price is charged. */
  | 'charged'
  /** It failed after the debit, or its process died before the capture: nothing is charged, and the nonce is spent. */
  | 'restored'
  /** It failed before the debit: nothing is charged, and the nonce is not spent by it. */
  | 'refused'
  /** 409: the nonce was spent by another attempt. */
  | 'replayed'
  /** The process died: the price is held until the lease ends, or nothing is. */
  | 'lost';

/** One request to spend. Undefined end: it is running. */
export interface Attempt {
  readonly price: bigint;
  readonly max: bigint;
  end?: End;
  /** Answered, but its process was killed soon after: it may not have been captured. */
  isDoubtful?: boolean;
}

export interface DepositModel {
  readonly identifier: string;
  readonly amount: bigint;
  requests: number;
  /** Requests whose process died before it answered. */
  lost: number;
  /** Some answer has told that it is credited. */
  isCredited: boolean;
  /** Answers that told that they had credited it themselves. */
  creditings: number;
}

/** What was known about a wallet when a request was sent. */
interface Mark {
  readonly credited: bigint;
  readonly charged: bigint;
  readonly freed: bigint;
}

/**
 * All that a wallet's clients know together: each request narrows what the balance can be at its time. With no request
 * running and none lost, the balance is known exactly.
 */
export class WalletModel {
  readonly deposits = new Map<string, DepositModel>();
  /** A process may have died before it sent a settlement, which has failed once the authorization expires. */
  #mayHaveFailed = false;
  readonly attempts = new Map<string, Attempt[]>();
  /** Sums of deposits: known to be credited, and asked for. */
  #credited = 0n;
  #creditable = 0n;
  /** Sums of prices: known to be charged, of all attempts, and of those that are known to be free. */
  #charged = 0n;
  #sent = 0n;
  #freed = 0n;

  mark(): Mark {
    return { credited: this.#credited, charged: this.#charged, freed: this.#freed };
  }

  /** @returns takes the reply, undefined when the process died */
  beginSpend(nonce: string, price: bigint, max: bigint): (reply: Reply | undefined) => { attempt: Attempt; end: End } {
    const attempts = this.attempts.get(nonce) ?? [];
    this.attempts.set(nonce, attempts);
    const others = [...attempts];
    const wasSpent = others.some(isSpending);
    const attempt: Attempt = { price, max };
    attempts.push(attempt);
    this.#sent += price;
    const mark = this.mark();
    return (reply) => {
      const rivals = attempts.filter((other) => other !== attempt);
      attempt.end = reply ? this.#endOf(reply, attempt, { rivals, wasSpent, mark }) : 'lost';
      if (attempt.end === 'charged') this.#charged += price;
      else if (attempt.end !== 'lost') this.#freed += price;
      return { attempt, end: attempt.end };
    };
  }

  #endOf(
    reply: Reply,
    { price, max }: Attempt,
    { rivals, wasSpent, mark }: { rivals: readonly Attempt[]; wasSpent: boolean; mark: Mark },
  ): End {
    const { status, headers } = reply;
    const code = status === 200 ? undefined : reply.json.error.code;
    const shown = headers.get('x-x402-balance');
    assert.match(shown ?? '', /^\d+$/, `${status} without a balance: ${reply.text.slice(0, 300)}`);
    const charged = BigInt(headers.get('x-x402-charged') ?? '-1');
    assert.equal(charged, status === 200 ? price : 0n, `${status} charged`);
    // The price of this attempt itself is not in the balance that a 200 shows, and is in any other.
    const [low, high] = this.#range(mark, status === 200 ? { upper: -price } : { lower: price });
    const balance = BigInt(shown as string);
    const within = `${status} shows ${balance}, and the clients know it to be within ${low} and ${high}`;
    assert.ok(low <= balance && balance <= high, within);
    switch (status) {
      case 200:
      case 502:
      case 503:
        assert.ok(!wasSpent && !rivals.some(isSpending), `${status} for a nonce that was spent`);
        assert.ok(price <= max, `${status}, and the signature permits ${max} of ${price}`);
        if (status !== 200) assert.match(code, /^TTS_(UPSTREAM_ERROR|UNAVAILABLE)$/);
        return status === 200 ? 'charged' : 'restored';
      case 409:
        assert.equal(code, 'PREPAID_NONCE_REPLAYED');
        assert.ok(rivals.some(maySpend), '409 for a nonce that nobody can have spent');
        return 'replayed';
      case 402:
        assert.ok(!wasSpent, '402 for a nonce that was spent (R32)');
        assert.equal(headers.get('payment-required'), null);
        if (max >= price) assert.ok(low < price, `402 for ${price}, and ${within}`);
        return 'refused';
      default:
        return assert.fail(`${status}: ${reply.text.slice(0, 300)}`);
    }
  }

  /** @returns takes the reply, undefined when the process died */
  beginRead(): (reply: Reply | undefined) => void {
    const mark = this.mark();
    return (reply) => {
      if (!reply) return;
      const [low, high] = this.#range(mark);
      if (reply.status === 404) return assert.equal(mark.credited, 0n, '404 for a wallet that has deposited');
      assert.equal(reply.status, 200, reply.text);
      const balance = BigInt(reply.json.balanceMicroUsd);
      assert.ok(low <= balance && balance <= high, `read ${balance}, known to be within ${low} and ${high}`);
    };
  }

  /** @returns takes the reply, undefined when the process died */
  beginDeposit(identifier: string, amount: bigint): (reply: Reply | undefined) => void {
    const deposit = this.deposits.get(identifier) ?? this.#newDeposit(identifier, amount);
    deposit.requests += 1;
    const wasCredited = deposit.isCredited;
    const mark = this.mark();
    return (reply) => {
      if (!reply) {
        deposit.lost += 1;
        this.#mayHaveFailed = true;
        return;
      }
      const { status, text } = reply;
      const isOnly = deposit.requests === 1;
      if (status === 200) {
        this.#depositCredited(deposit, reply, { isOnly, wasCredited, mark });
        return;
      }
      if (status === 429 && !wasCredited && this.#mayHaveFailed) {
        assert.equal(reply.json.error.details.reason, 'one_at_a_time_after_failure');
        return;
      }
      assert.ok(!isOnly && !wasCredited, `${status} for a deposit ${wasCredited ? 'that is credited' : ''}: ${text}`);
      if (status === 409) assert.match(reply.json.error.code, /^PAYMENT_(REPLAY_PENDING|OUTCOME_UNKNOWN)$/);
      else assert.ok(status === 402 && deposit.lost > 0, `${status} for a deposit that is repeated: ${text}`);
    };
  }

  #newDeposit(identifier: string, amount: bigint): DepositModel {
    const deposit = { identifier, amount, requests: 0, lost: 0, isCredited: false, creditings: 0 };
    this.deposits.set(identifier, deposit);
    this.#creditable += amount;
    return deposit;
  }

  #depositCredited(
    deposit: DepositModel,
    { json }: Reply,
    { isOnly, wasCredited, mark }: { isOnly: boolean; wasCredited: boolean; mark: Mark },
  ): void {
    const { amount } = deposit;
    const by = BigInt(json.creditedMicroUsd);
    assert.ok(by === amount || by === 0n, `credited ${by} of ${amount}`);
    assert.equal(json.alreadyCredited, by === 0n);
    if (by > 0n) deposit.creditings += 1;
    assert.ok(deposit.creditings <= 1, 'two answers credited the same deposit');
    assert.ok(!(wasCredited && by > 0n), 'a deposit was credited again');
    assert.ok(!(isOnly && by === 0n), 'the only request of a deposit found it credited');
    const [low, high] = this.#range(mark, { lower: wasCredited ? 0n : amount });
    const balance = BigInt(json.balanceMicroUsd);
    assert.ok(low <= balance && balance <= high, `deposit shows ${balance}, known to be within ${low} and ${high}`);
    if (!deposit.isCredited) this.#credited += amount;
    deposit.isCredited = true;
  }

  /** What the balance can have been since the mark, and what is known besides about this request. */
  #range(mark: Mark, { lower = 0n, upper = 0n } = {}): [low: bigint, high: bigint] {
    const low = mark.credited - (this.#sent - mark.freed) + lower;
    return [low < 0n ? 0n : low, this.#creditable - mark.charged + upper];
  }

  /** The process of a charged attempt was killed soon after: its hold may be voided, and the audio be for nothing. */
  doubt(attempt: Attempt): void {
    if (attempt.end !== 'charged' || attempt.isDoubtful) return;
    attempt.isDoubtful = true;
    this.#charged -= attempt.price;
  }

  /** The ledger tells whether the hold of a doubtful charge was voided. */
  settleDoubt(attempt: Attempt, isVoided: boolean): void {
    attempt.isDoubtful = false;
    if (isVoided) {
      attempt.end = 'restored';
      this.#freed += attempt.price;
    } else {
      this.#charged += attempt.price;
    }
  }

  /** The ledger tells what a lost request came to. */
  settleLost(attempt: Attempt, end: 'restored' | 'refused'): void {
    attempt.end = end;
    this.#freed += attempt.price;
  }

  /** The ledger tells what a deposit came to that no answer has told of. */
  settleDeposit(deposit: DepositModel, isCredited: boolean): void {
    deposit.isCredited = isCredited;
    if (isCredited) {
      this.#credited += deposit.amount;
    } else {
      this.#creditable -= deposit.amount;
      this.deposits.delete(deposit.identifier);
    }
  }

  /** What is known to be credited. */
  get deposited(): bigint {
    return this.#credited;
  }

  /** The balance, once nothing runs and everything lost is settled. */
  get balance(): bigint {
    assert.equal(this.#sent - this.#freed, this.#charged, 'something is in doubt');
    return this.#credited - this.#charged;
  }
}

const isSpending = ({ end }: Attempt): boolean => end === 'charged' || end === 'restored';
const maySpend = (attempt: Attempt): boolean =>
  attempt.end === undefined || attempt.end === 'lost' || isSpending(attempt);
