import type { Database } from '../../db/database.ts';
import { readWallet, type WalletReading } from '../../ledger/accounts.ts';
import { isInTime, isNonceSpent, WalletHolds } from '../../ledger/wallet-holds.ts';
import { type BalanceHold, HoldPlacer, type HoldPlacerParts } from '../hold-placer.ts';
import type { Charge, Held, PaymentFlow, RequestContext } from '../payment-flow.ts';
import { type Refused, refused } from '../refusal.ts';
import type { PrepaidAudioStore } from './prepaid-audio-store.ts';
import {
  isOfAddress,
  type PrepaidCredential,
  type PrepaidVerifier,
  readPrepaidCredential,
  requestDigest,
  type SignedRequest,
  signedRequestOf,
} from './prepaid-credential.ts';
import type { PrepaidReplays } from './prepaid-replays.ts';

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

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    return readPrepaidCredential(headers);
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

export const prepaidReceipt = (balanceMicroUsd: bigint, chargedMicroUsd: bigint): PrepaidReceipt => ({
  'x-x402-balance': balanceMicroUsd,
  'x-x402-charged': chargedMicroUsd,
});

/** Only the owner may see the balance (R32). */
const unpaid = (reason: string, balanceMicroUsd: bigint, credential: 'verified' | 'failed') =>
  refused('PAYMENT_REQUIRED', reason, { credential, balanceMicroUsd, receipt: prepaidReceipt(balanceMicroUsd, 0n) });
