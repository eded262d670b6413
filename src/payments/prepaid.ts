import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import type { PaidFor } from '../ledger/paid-for.ts';
import { isInTime, placeSpend, readWallet, type WalletReading } from '../ledger/wallets.ts';
import { endWith, holdFor, type UnpaidWork, type WorkRefusal } from '../limits/unpaid-work.ts';
import type { Metrics } from '../metrics.ts';
import { testPoint } from '../test-point.ts';
import {
  type PrepaidCredential,
  type PrepaidVerifier,
  type RawRequest,
  type SignedRequest,
  signedRequestOf,
} from '../x402/prepaid-credential.ts';
import { Replays } from '../x402/replays.ts';
import { BalanceHolds, type Delivery, leaseSeconds } from './balance-holds.ts';
import type { BufferedHold } from './buffered.ts';
import type { Answer } from './deliveries.ts';

/** What is left in the balance, and what this request has retained of it, in micro-USD. */
export interface PrepaidReceipt {
  /** False when the hold was lost: nothing was charged, and nothing may be delivered. */
  readonly isCharged: boolean;
  readonly balanceMicroUsd: bigint;
}

export interface PrepaidHold extends BufferedHold<PrepaidReceipt> {
  /** The balance once the hold is void; the hold may still be pending when the database is away (R33). */
  readonly restoredMicroUsd: bigint;
}

export type PrepaidAuthorization =
  | { readonly outcome: 'held'; readonly hold: PrepaidHold }
  /** `repeated` when exactly this request was told before that its nonce is spent: nothing was looked up for it. */
  | { readonly outcome: 'unauthorized' | 'expiry' | 'unknown_account' | 'repeated' }
  /** The wallet's unpaid work leaves no room for more now. */
  | { readonly outcome: 'busy'; readonly reason: WorkRefusal }
  | {
      readonly outcome: 'replayed' | 'insufficient_funds' | 'over_max_amount';
      readonly balanceMicroUsd: bigint;
    };

export type BalanceReading = WalletReading | { readonly outcome: 'unauthorized' };

/** Pays an order from a wallet's prepaid balance against a signature: nonce and debit are one write (R30 to R34). */
export class PrepaidBalances {
  readonly #db: Database;
  readonly #verifier: PrepaidVerifier;
  readonly #holds: BalanceHolds;
  readonly #leaseSeconds: number;
  readonly #replays = new Replays();
  readonly #work: UnpaidWork;

  constructor(
    db: Database,
    verifier: PrepaidVerifier,
    options: {
      synthesisTimeoutMs: number;
      work: UnpaidWork;
      log: FastifyBaseLogger;
      metrics: Metrics;
      delivery: Delivery;
    },
  ) {
    this.#db = db;
    this.#verifier = verifier;
    this.#holds = new BalanceHolds(db, 'prepaid', options.log, options.metrics, options.delivery);
    this.#leaseSeconds = leaseSeconds(options.synthesisTimeoutMs);
    this.#work = options.work;
  }

  async authorize(
    credential: PrepaidCredential,
    request: RawRequest,
    priceMicroUsd: bigint,
    paidFor: PaidFor,
    answer: Answer,
  ): Promise<PrepaidAuthorization> {
    if (this.#replays.has(credential, request)) return { outcome: 'repeated' };
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return { outcome: 'unauthorized' };
    const { account: address, nonce, expiry, maxAmountMicroUsd } = credential;
    const isPermitted = priceMicroUsd <= maxAmountMicroUsd;
    const spend = { address, nonce, expiry, amountMicroUsd: priceMicroUsd, isPermitted };
    const endWork = this.#work.begin(address);
    if (typeof endWork === 'string') return { outcome: 'busy', reason: endWork };
    const placing = this.#holds.place(answer, (processId) =>
      placeSpend(this.#db, spend, this.#leaseSeconds, paidFor, processId),
    );
    const result = await holdFor(endWork, placing);
    testPoint('prepaid debited');
    if (result.outcome === 'replayed') this.#replays.add(credential, request);
    if (result.outcome === 'insufficient_funds' && !isPermitted) return { ...result, outcome: 'over_max_amount' };
    if (result.outcome !== 'held') return result;
    const { hold } = result;
    let restoredMicroUsd = hold.balanceMicroUsd + hold.amountMicroUsd;
    return {
      outcome: 'held',
      hold: {
        get restoredMicroUsd() {
          return restoredMicroUsd;
        },
        capture: async () => {
          testPoint('prepaid spoken');
          const isCharged = await endWith(endWork, this.#holds.capture(hold), (captured) => captured);
          testPoint('prepaid captured');
          return { isCharged, balanceMicroUsd: isCharged ? hold.balanceMicroUsd : restoredMicroUsd };
        },
        void: async () => {
          testPoint('prepaid voiding');
          const voided = await endWith(endWork, this.#holds.void(hold), () => false);
          restoredMicroUsd = voided ?? restoredMicroUsd;
        },
      },
    };
  }

  /**
   * Whether the credential is that of a wallet for this request, in time, and not known to be spent. Nothing is written:
   * `authorize` judges again.
   */
  async verifies(credential: PrepaidCredential, request: RawRequest): Promise<boolean> {
    if (this.#replays.has(credential, request)) return false;
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return false;
    return (await readWallet(this.#db, credential.account, credential.expiry)).outcome === 'read';
  }

  /** Whether the credential's expiry is neither past nor too far ahead (R30). */
  isInTime({ expiry }: PrepaidCredential): Promise<boolean> {
    return isInTime(this.#db, expiry);
  }

  /** Another address's credential is refused before anything is read; no nonce is consumed (R31). */
  async read(credential: PrepaidCredential, request: SignedRequest, address: string): Promise<BalanceReading> {
    const isOwn = credential.account === address.toLowerCase();
    if (!isOwn || !this.#verifier.isSignedByAccount(credential, request)) return { outcome: 'unauthorized' };
    return readWallet(this.#db, credential.account, credential.expiry);
  }
}
