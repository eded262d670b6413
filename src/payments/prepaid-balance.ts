import type { Database } from '../db/database.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { placeWalletHold, placeWalletHolds, type Spend, type SpendResult } from '../ledger/wallet-holds.ts';
import { isInTime, readWallet, type WalletReading } from '../ledger/wallets.ts';
import {
  type PrepaidCredential,
  type PrepaidVerifier,
  readCredential,
  requestDigest,
  type SignedRequest,
  signedRequestOf,
} from '../x402/prepaid-credential.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';
import type { BalanceHold } from './balance-hold.ts';
import { HoldKeeper, type HoldKeeperParts, NOT_CHARGED } from './hold-keeper.ts';
import type { LostAnswers } from './lost-answers.ts';
import type { Authorization, Charge, PaidRequest, PaymentFlow } from './payment-flow.ts';
import type { PrepaidReplays } from './prepaid-replays.ts';
import { type Refused, refused } from './refusal.ts';

type PrepaidCode =
  | 'INVALID_REQUEST'
  | 'UNAUTHORIZED'
  | 'PAYMENT_REQUIRED'
  | 'PREPAID_NONCE_REPLAYED'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

export interface PrepaidReceipt extends Record<string, bigint> {
  readonly 'x-x402-balance': bigint;
  readonly 'x-x402-charged': bigint;
}

export type PrepaidHold = BalanceHold<PrepaidReceipt>;

/** Pays from a wallet's prepaid balance against a signature: nonce and debit are one write (R30 to R34). */
export class PrepaidBalance implements PaymentFlow<PrepaidCredential, PrepaidCode, PrepaidHold> {
  readonly name = 'prepaid';
  readonly isRemote = false;
  readonly untaken = NOT_CHARGED;
  readonly #db: Database;
  readonly #verifier: PrepaidVerifier;
  readonly #holds: HoldKeeper;
  readonly #leaseSeconds: number;
  readonly #grouped: GroupedStatement<Spend, SpendResult | undefined>;
  readonly #lostAnswers: LostAnswers;
  readonly #replays: PrepaidReplays;

  constructor(verifier: PrepaidVerifier, replays: PrepaidReplays, lostAnswers: LostAnswers, parts: HoldKeeperParts) {
    this.#db = parts.db;
    this.#lostAnswers = lostAnswers;
    this.#replays = replays;
    this.#verifier = verifier;
    this.#holds = new HoldKeeper('prepaid', parts);
    const { db, leaseSeconds } = parts;
    this.#leaseSeconds = leaseSeconds;
    this.#grouped = new GroupedStatement({
      run: (spends) => placeWalletHolds(db, spends, { leaseSeconds, locked: 'skip' }),
      keyOf: (spend) => spend,
    });
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    return readPrepaidHeaders(headers);
  }

  /** Of a wallet that has deposited, in time, and for no nonce that is known to be spent. */
  async verifies(credential: PrepaidCredential, request: PaidRequest): Promise<boolean> {
    if (this.#replays.known(requestDigest(credential, request))) return false;
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return false;
    return (await readWallet(this.#db, credential.account, credential.expiry)).outcome === 'read';
  }

  async authorize(
    credential: PrepaidCredential,
    { priceMicroUsd, paidFor, request }: Charge,
  ): Promise<Authorization<PrepaidCode, PrepaidHold>> {
    const digest = requestDigest(credential, request);
    const known = this.#replays.known(digest);
    if (known) return known;
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return this.#unauthorized(credential);
    const { account: address, nonce, expiry, maxAmountMicroUsd } = credential;
    const isPermitted = priceMicroUsd <= maxAmountMicroUsd;
    const spend = { address, nonce, digest, expiry, amountMicroUsd: priceMicroUsd, isPermitted, paidFor };
    const answer = this.#lostAnswers.follow(request.answer);
    const result = await this.#holds.place(address, answer, (processId) => this.#place({ processId, ...spend }), {
      show: receiptOf,
      captured: ({ id }, audio) => audio && answer.pays(id, audio),
    });
    if (result.outcome === 'refused') return (await this.#replays.ofIdentical(credential, digest)) ?? result;
    const { placed, hold } = result;
    if (hold || placed.outcome === 'held') return { outcome: 'held', hold: hold as PrepaidHold };
    if (placed.outcome === 'expiry') return EXPIRY_REFUSED;
    if (placed.outcome !== 'replayed') return refuse(placed, isPermitted);
    return (
      (await this.#replays.ofIdentical(credential, digest)) ??
      this.#replays.ofAnother(credential, digest, placed.balanceMicroUsd)
    );
  }

  /** Another address's credential is refused before anything is read; no nonce is consumed (R31). */
  async read(
    credential: PrepaidCredential,
    request: SignedRequest,
    address: string,
  ): Promise<Exclude<WalletReading, { outcome: 'expiry' }> | Refused<'UNAUTHORIZED' | 'INVALID_REQUEST'>> {
    const isOwn = credential.account === address.toLowerCase();
    if (!isOwn || !this.#verifier.isSignedByAccount(credential, request)) return this.#unauthorized(credential);
    const reading = await readWallet(this.#db, credential.account, credential.expiry);
    return reading.outcome === 'expiry' ? EXPIRY_REFUSED : reading;
  }

  /** Together with others', unless the wallet is unknown or in the hands of another process, or others come before it. */
  async #place(spend: Spend): Promise<SpendResult> {
    const placed = await this.#grouped.execute(spend);
    return placed && placed.outcome !== 'unknown_account'
      ? placed
      : placeWalletHold(this.#db, spend, this.#leaseSeconds);
  }

  /** An expiry out of range is told first, whoever signed it (R30). */
  #unauthorized({ expiry }: PrepaidCredential): Refused<'UNAUTHORIZED' | 'INVALID_REQUEST'> {
    const unauthorized = refused('UNAUTHORIZED', 'signature', { credential: 'failed' });
    return {
      ...unauthorized,
      explain: async () => ((await isInTime(this.#db, expiry)) ? unauthorized : EXPIRY_REFUSED),
    };
  }
}

/** Reads the five headers: all of them or none (R30). */
export function readPrepaidHeaders(headers: Readonly<Record<string, string | undefined>>) {
  const missing = PREPAID.headers.find((name) => headers[name] === undefined);
  if (missing !== undefined) {
    const message = `${missing} is missing. A prepaid request carries ${PREPAID.headers.join(', ')}.`;
    return malformed(missing, 'required', message);
  }
  const credential = readCredential(headers);
  return credential
    ? { outcome: 'read' as const, credential }
    : malformed('x-x402-max-amount', 'uint256', 'x-x402-max-amount must be a uint256.');
}

const EXPIRY_REFUSED = refused('INVALID_REQUEST', 'expiry', { credential: 'failed' });

const receiptOf = (balanceMicroUsd: bigint, chargedMicroUsd: bigint): PrepaidReceipt => ({
  'x-x402-balance': balanceMicroUsd,
  'x-x402-charged': chargedMicroUsd,
});

const malformed = (field: string, rule: string, message: string) =>
  refused('INVALID_REQUEST', 'malformed_credential', { fault: { field, rule, message } });

/** Why a spend by its owner was refused. The balance is told to nobody else (R32). */
function refuse(
  placed: Exclude<SpendResult, { outcome: 'held' | 'expiry' | 'replayed' }>,
  isPermitted: boolean,
): Refused<PrepaidCode> {
  if (placed.outcome === 'unknown_account') {
    return refused('PAYMENT_REQUIRED', 'never_deposited', {
      credential: 'failed',
      balanceMicroUsd: 0n,
      receipt: receiptOf(0n, 0n),
    });
  }
  const { balanceMicroUsd } = placed;
  const known = { credential: 'verified', balanceMicroUsd, receipt: receiptOf(balanceMicroUsd, 0n) } as const;
  return refused('PAYMENT_REQUIRED', isPermitted ? 'insufficient_funds' : 'over_max_amount', known);
}
