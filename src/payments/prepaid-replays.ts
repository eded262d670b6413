import type { Database } from '../db/database.ts';
import { type EarlierSpend, findSpend } from '../ledger/spent-nonce.ts';
import { isNonceKept } from '../ledger/wallets.ts';
import { type PrepaidCredential, type RawRequest, requestDigest } from '../x402/prepaid-credential.ts';
import type { LostAnswers } from './lost-answers.ts';
import type { NewRequest } from './payment-flow.ts';
import { chargedPayment, NOTHING_CHARGED, unknownPayment } from './payment-outcome.ts';
import { type Repeated, refused } from './refusal.ts';
import { RefusedReplays, type ReplayRefused } from './refused-replays.ts';
import type { UnfinishedHolds } from './unfinished-holds.ts';

/** How long an answer is repeated from memory that may change: one request can't ask the database more often. */
const CHANGING_MS = 1_000;
/** How long one is that stays as it is; the nonce is kept for longer after its retention is over. */
const FINAL_MS = 3_600_000;

export interface PrepaidReplaysParts {
  readonly db: Database;
  readonly unfinished: UnfinishedHolds;
  readonly lostAnswers: LostAnswers;
}

/** What those are told whose nonces are spent: what became of it, only who repeats the identical request (R60). */
export class PrepaidReplays {
  readonly #parts: PrepaidReplaysParts;
  readonly #refused = new RefusedReplays();

  constructor(parts: PrepaidReplaysParts) {
    this.#parts = parts;
  }

  /**
   * What became of the first of identical requests, whatever is sold now. An identical request has the signature that was
   * verified then. A nonce that was forgotten since tells nothing (R34).
   */
  async look(credential: PrepaidCredential, request: RawRequest): Promise<ReplayRefused | NewRequest> {
    const digest = requestDigest(credential, request);
    const replay = this.known(digest) ?? (await this.ofIdentical(credential, digest));
    if (replay) return replay;
    const isKept = await isNonceKept(this.#parts.db, credential.expiry);
    return { outcome: 'new', payment: isKept ? NOTHING_CHARGED : { state: 'unknown' } };
  }

  /**
   * The answer of exactly this request, where it was answered so before: it takes no slot of its address's window, but is
   * counted at the edge; the balance is not known here.
   */
  known(digest: Buffer): ReplayRefused | undefined {
    return this.#refused.get(digest);
  }

  /** The refusal of the request that has spent its nonce; undefined for any other. */
  async ofIdentical({ account, nonce }: PrepaidCredential, digest: Buffer): Promise<ReplayRefused | undefined> {
    const find = () => findSpend(this.#parts.db, account, nonce, digest);
    let spend = await find();
    if (!spend) return undefined;
    // What was read began before it was known that nothing is open; a later look has seen all that this process did.
    const isOver = spend.state === 'charged' && !spend.audio && this.#isOpen(spend) === false;
    if (isOver && !spend.isLongOver) spend = (await find()) ?? spend;
    const repeated = this.#repeated(spend);
    const durationMs = this.#isFinal(spend, repeated) ? FINAL_MS : CHANGING_MS;
    return this.#remember(digest, durationMs, spend.balanceMicroUsd, repeated);
  }

  /** The refusal of another request with a nonce that is spent; remembered until that request expires. */
  ofAnother({ expiry }: PrepaidCredential, digest: Buffer, balanceMicroUsd: bigint): ReplayRefused {
    return this.#remember(digest, Number(expiry) * 1000 - Date.now(), balanceMicroUsd, undefined);
  }

  #remember(
    digest: Buffer,
    durationMs: number,
    balanceMicroUsd: bigint,
    repeated: Repeated | undefined,
  ): ReplayRefused {
    const told = repeated && { repeated, payment: repeated.payment };
    this.#refused.add(
      digest,
      refused('PREPAID_NONCE_REPLAYED', 'nonce_spent', { ...told, receipt: { 'x-x402-charged': 0n } }),
      durationMs,
    );
    const receipt = { 'x-x402-balance': balanceMicroUsd, 'x-x402-charged': 0n };
    return refused('PREPAID_NONCE_REPLAYED', 'nonce_spent', {
      ...told,
      ...{ credential: 'verified', balanceMicroUsd, receipt },
    });
  }

  #repeated({ state, amountMicroUsd, audio, ...spend }: EarlierSpend): Repeated {
    const isOpen = this.#isOpen(spend) ?? (spend.isUnfinished || spend.mayBeLost);
    if (state === 'pending' || (state === 'charged' && isOpen && !audio)) {
      return { state: 'pending', payment: unknownPayment(amountMicroUsd), audio: undefined };
    }
    const payment = state === 'charged' ? chargedPayment(amountMicroUsd) : NOTHING_CHARGED;
    return { state, payment, audio };
  }

  /** A charge of another process may still turn out not to have arrived. */
  #isFinal(spend: EarlierSpend, { state, audio }: Repeated): boolean {
    if (state !== 'charged') return state === 'restored';
    return !audio && (spend.isLongOver || this.#isOpen(spend) === false);
  }

  /** Whether it may still turn out not to have been delivered; undefined where another process knows. */
  #isOpen({ processId, holdId }: Pick<EarlierSpend, 'processId' | 'holdId'>): boolean | undefined {
    const { unfinished, lostAnswers } = this.#parts;
    return lostAnswers.isFollowed(holdId) || unfinished.isOpen(processId, holdId);
  }
}
