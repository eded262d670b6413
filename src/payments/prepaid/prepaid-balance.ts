import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../../db/database.ts';
import { isUnavailable } from '../../db/database-errors.ts';
import { readWallet, type WalletReading } from '../../ledger/accounts.ts';
import type { HoldRecord } from '../../ledger/hold.ts';
import {
  findSpend,
  isInTime,
  isNonceKept,
  isNonceSpent,
  type PreviousDebit,
  WalletHolds,
} from '../../ledger/wallet-holds.ts';
import type { RunningWork } from '../../lib/running-work.ts';
import { testPoint } from '../../lib/test-point.ts';
import type { AudioStore, StoredAudio } from '../../speech/store/audio-store.ts';
import { type BalanceHold, HoldPlacer, type HoldPlacerParts } from '../hold-placer.ts';
import { chargedPayment, NOTHING_CHARGED, type Receipt, type Refused, refused, unknownPayment } from '../refusal.ts';
import type { Charge, Held, NewRequest, PaymentFlow, RequestContext } from '../speak.ts';
import {
  isOfAddress,
  type PrepaidCredential,
  type PrepaidVerifier,
  type RawRequest,
  readPrepaidCredential,
  requestDigest,
  type SignedRequest,
  signedRequestOf,
} from './prepaid-credential.ts';

type PrepaidCode =
  | 'INVALID_REQUEST'
  | 'UNAUTHORIZED'
  | 'PAYMENT_REQUIRED'
  | 'PREPAID_NONCE_REPLAYED'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

interface PrepaidReceipt extends Record<string, bigint> {
  readonly 'x-x402-balance': bigint;
  readonly 'x-x402-charged': bigint;
}

/**
 * Pays from a wallet's prepaid balance by a signature (R30 to R34). The balance comes from deposits and can only be spent.
 * Nonce and debit are one write. No facilitator is asked, and nothing is sent to the chain (R71).
 */
export class PrepaidBalance implements PaymentFlow<PrepaidCredential> {
  readonly name = 'prepaid';
  readonly credentialOf = readPrepaidCredential;
  readonly #db: Database;
  readonly #verifier: PrepaidVerifier;
  readonly #holds: HoldPlacer;
  readonly #wallets: WalletHolds;
  readonly #audio: PrepaidAudioStore;
  readonly #replays: PrepaidReplays;

  constructor(verifier: PrepaidVerifier, replays: PrepaidReplays, audio: PrepaidAudioStore, parts: HoldPlacerParts) {
    const { db, leases } = parts;
    this.#db = db;
    this.#audio = audio;
    this.#replays = replays;
    this.#verifier = verifier;
    this.#holds = new HoldPlacer('prepaid', parts);
    this.#wallets = new WalletHolds(db, leases.seconds);
  }

  async verify(credential: PrepaidCredential, request: RequestContext): Promise<boolean> {
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return false;
    const { account, nonce, expiry } = credential;
    if ((await readWallet(this.#db, account, expiry)).outcome !== 'read') return false;
    return !(await isNonceSpent(this.#db, account, nonce));
  }

  async authorize(
    credential: PrepaidCredential,
    { priceMicroUsd, usage, request }: Charge,
  ): Promise<Held<BalanceHold<PrepaidReceipt>> | Refused<PrepaidCode>> {
    const digest = requestDigest(credential, request);
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return this.#unauthorized(credential);
    const { account: address, nonce, expiry, maxAmountMicroUsd } = credential;
    const isWithinMaximum = priceMicroUsd <= maxAmountMicroUsd;
    const holdRequest = { address, nonce, digest, expiry, amountMicroUsd: priceMicroUsd, isWithinMaximum, usage };
    const result = await this.#holds.place(address, (id) => this.#wallets.place({ id, ...holdRequest }), {
      receiptOf: prepaidReceipt,
      log: request.log,
      onDelivered: ({ id }, audio) => audio && this.#audio.store(id, audio, request.log),
      refuseUnvoided: (hold) => this.#replays.ofUnvoided(credential, digest, hold),
    });
    switch (result.outcome) {
      case 'held':
        return result;
      case 'refused':
        // Over a limit, an identical repetition still learns its outcome.
        return (await this.#replays.ofIdentical(credential, digest)) ?? result;
      case 'expiry':
        return EXPIRY_REFUSED;
      case 'nonce_spent':
        return this.#replays.ofSpentNonce(credential, digest, result.balanceMicroUsd);
      case 'unknown_account':
        return unpaid('never_deposited', 0n, 'failed');
      case 'over_max_amount':
      case 'insufficient_funds':
        return unpaid(result.outcome, result.balanceMicroUsd, 'verified');
    }
  }

  /** Reads a balance without spending the nonce (R31). Refuses another address's credential before any read. */
  async read(
    credential: PrepaidCredential,
    request: SignedRequest,
    address: string,
  ): Promise<Exclude<WalletReading, { outcome: 'expiry' }> | Refused<'UNAUTHORIZED' | 'INVALID_REQUEST'>> {
    if (!isOfAddress(credential, address) || !this.#verifier.isSignedByAccount(credential, request))
      return this.#unauthorized(credential);
    const reading = await readWallet(this.#db, credential.account, credential.expiry);
    return reading.outcome === 'expiry' ? EXPIRY_REFUSED : reading;
  }

  /** An expiry out of range is reported first, regardless of the signer (R30). */
  #unauthorized({ expiry }: PrepaidCredential): Refused<'UNAUTHORIZED' | 'INVALID_REQUEST'> {
    const unauthorized = refused('UNAUTHORIZED', 'signature', { credential: 'failed' });
    const expiryFirst = async () => ((await isInTime(this.#db, expiry)) ? unauthorized : EXPIRY_REFUSED);
    return { ...unauthorized, expiryFirst };
  }
}

const EXPIRY_REFUSED = refused('INVALID_REQUEST', 'expiry', { credential: 'failed' });

/** The balance, and what the request cost: 0 after a failed synthesis (R33). */
const prepaidReceipt = (balanceMicroUsd: bigint, chargedMicroUsd: bigint): PrepaidReceipt => ({
  'x-x402-balance': balanceMicroUsd,
  'x-x402-charged': chargedMicroUsd,
});

/** Only the owner may see the balance (R32). */
const unpaid = (reason: string, balanceMicroUsd: bigint, credential: 'verified' | 'failed') =>
  refused('PAYMENT_REQUIRED', reason, { credential, balanceMicroUsd, receipt: prepaidReceipt(balanceMicroUsd, 0n) });

type ReplayRefused = Refused<'PREPAID_NONCE_REPLAYED'>;

/** The refusals of spent nonces. Only a repetition of the identical request learns the outcome (R60). */
export class PrepaidReplays {
  readonly name = 'prepaid';
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async find(
    headers: Readonly<Record<string, string | undefined>>,
    request: RawRequest,
  ): Promise<ReplayRefused | NewRequest | undefined> {
    const shown = readPrepaidCredential(headers);
    if (shown.outcome === 'refused') return undefined;
    const { credential } = shown;
    const replay = await this.ofIdentical(credential, requestDigest(credential, request));
    if (replay) return replay;
    // A nonce that was pruned since proves nothing (R34).
    const isKept = await isNonceKept(this.#db, credential.expiry);
    return { outcome: 'new', payment: isKept ? NOTHING_CHARGED : { state: 'unknown' } };
  }

  async ofSpentNonce(credential: PrepaidCredential, digest: Buffer, balanceMicroUsd: bigint): Promise<ReplayRefused> {
    return (await this.ofIdentical(credential, digest)) ?? replayed(balanceMicroUsd);
  }

  /** Checks no signature: the digest covers it, so an identical request has the signature that was verified then. */
  async ofIdentical({ account, nonce }: PrepaidCredential, digest: Buffer): Promise<ReplayRefused | undefined> {
    const spend = await findSpend(this.#db, account, nonce, digest);
    return spend && replayOf(spend);
  }

  /**
   * Of a hold that this process did not void. A failover may have lost it, and an identical request may have its nonce
   * since. While the database is unavailable, nobody can tell.
   */
  async ofUnvoided(
    credential: PrepaidCredential,
    digest: Buffer,
    hold: HoldRecord,
  ): Promise<ReplayRefused | undefined> {
    try {
      const found = await this.ofIdentical(credential, digest);
      return found?.payment?.state === 'not_charged' ? undefined : found;
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      return replayOf({ ...hold, holdId: hold.id, state: 'pending' });
    }
  }
}

function replayOf(spend: PreviousDebit): ReplayRefused {
  const { balanceMicroUsd, state, holdId } = spend;
  const payment = outcomeOfDebit(spend);
  return replayed(balanceMicroUsd, { replay: { state, holdId, payment }, payment });
}

const replayed = (balanceMicroUsd: bigint, more: Pick<Refused, 'replay' | 'payment'> = {}): ReplayRefused =>
  refused('PREPAID_NONCE_REPLAYED', 'nonce_spent', {
    credential: 'verified',
    balanceMicroUsd,
    receipt: replayReceipt(balanceMicroUsd, more.payment),
    ...more,
  });

/** What the first request was charged. Absent while that is unknown. */
const replayReceipt = (balanceMicroUsd: bigint, { state, amountMicroUsd } = NOTHING_CHARGED): Receipt =>
  state === 'unknown'
    ? { 'x-x402-balance': balanceMicroUsd }
    : prepaidReceipt(balanceMicroUsd, BigInt(amountMicroUsd ?? 0));

function outcomeOfDebit({ state, amountMicroUsd }: PreviousDebit) {
  switch (state) {
    case 'pending':
      return unknownPayment(amountMicroUsd);
    case 'charged':
      return chargedPayment(amountMicroUsd);
    case 'restored':
      return NOTHING_CHARGED;
  }
}

/** How long the audio of a prepaid response can be fetched again (R60). */
export const PREPAID_AUDIO_SECONDS = 600;

interface PrepaidAudioStoreParts {
  readonly store: AudioStore;
  readonly maxBytesPerMinute: number;
  readonly work: RunningWork;
}

/** Stores the audio of prepaid responses that may be lost (R60). Best effort: nothing waits for it. */
export class PrepaidAudioStore {
  readonly #parts: PrepaidAudioStoreParts;
  #minute = 0;
  #bytesOfMinute = 0;

  constructor(parts: PrepaidAudioStoreParts) {
    this.#parts = parts;
  }

  store(id: string, audio: Buffer, log: FastifyBaseLogger): void {
    const { store, maxBytesPerMinute, work } = this.#parts;
    const minute = Math.floor(Date.now() / 60_000);
    if (minute !== this.#minute) this.#bytesOfMinute = 0;
    this.#minute = minute;
    if (this.#bytesOfMinute + audio.length > maxBytesPerMinute) return;
    this.#bytesOfMinute += audio.length;
    const stored = store.dated.prepaid
      .put(id, audio, 'audio/mpeg')
      .then(() => testPoint('prepaid audio kept'))
      .catch((err) =>
        log.warn(
          { err, hold: id },
          'failed to store a copy of the audio of a prepaid response, so a repeated request cannot fetch it; the charge stays as it is. Read err for the cause',
        ),
      );
    work.add(stored);
  }

  open(id: string, range?: { readonly start: number; readonly end: number }): Promise<StoredAudio | undefined> {
    return this.#parts.store.dated.prepaid.open(id, range);
  }
}
