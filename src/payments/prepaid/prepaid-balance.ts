import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../../db/database.ts';
import { GroupedStatement } from '../../db/grouped-statement.ts';
import {
  singleWalletHold,
  type WalletHoldRequest,
  type WalletHoldResult,
  walletHoldStatement,
} from '../../ledger/wallet-holds.ts';
import {
  findSpend,
  isInTime,
  isNonceKept,
  isNonceSpent,
  type PreviousDebit,
  readWallet,
  type WalletReading,
} from '../../ledger/wallets.ts';
import type { RunningWork } from '../../lib/running-work.ts';
import { testPoint } from '../../lib/test-point.ts';
import { compactFault } from '../../lib/wallet-signature.ts';
import type { AudioStore, StoredAudio } from '../../speech/store/audio-store.ts';
import { type BalanceHold, HoldKeeper, type HoldKeeperParts } from '../hold-keeper.ts';
import type { Charge, Held, NewRequest, PaymentFlow, RequestContext } from '../payment-flow.ts';
import { chargedPayment, NOTHING_CHARGED, type Refused, refused, unknownPayment } from '../refusal.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';
import {
  type PrepaidCredential,
  type PrepaidVerifier,
  type RawRequest,
  readCredential,
  requestDigest,
  type SignedRequest,
  signedRequestOf,
} from './prepaid-credential.ts';

/** How long the audio of a prepaid response can be fetched again (R60). */
export const PREPAID_AUDIO_SECONDS = 600;

interface PrepaidAudioParts {
  readonly store: AudioStore;
  readonly maxBytesPerMinute: number;
  readonly work: RunningWork;
}

/** Stores the audio of prepaid responses that may be lost (R60). Best effort: nothing waits for it. */
export class PrepaidAudio {
  readonly #parts: PrepaidAudioParts;
  #minute = 0;
  #bytesOfMinute = 0;

  constructor(parts: PrepaidAudioParts) {
    this.#parts = parts;
  }

  store(id: string, audio: Buffer, log: FastifyBaseLogger): void {
    const { store, maxBytesPerMinute, work } = this.#parts;
    const minute = Math.floor(Date.now() / 60_000);
    if (minute !== this.#minute) this.#bytesOfMinute = 0;
    this.#minute = minute;
    if (this.#bytesOfMinute + audio.length > maxBytesPerMinute) return;
    this.#bytesOfMinute += audio.length;
    const kept = store.dated.prepaid
      .put(id, audio, 'audio/mpeg')
      .then(() => testPoint('prepaid audio kept'))
      .catch((err) =>
        log.warn(
          { err, hold: id },
          'failed to keep the audio of a prepaid response for repetitions; its charge is not affected',
        ),
      );
    work.add(kept);
  }

  open(id: string, range?: { readonly start: number; readonly end: number }): Promise<StoredAudio | undefined> {
    return this.#parts.store.dated.prepaid.open(id, range);
  }
}

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

type PrepaidHold = BalanceHold<PrepaidReceipt>;

/** Pays from a wallet's prepaid balance by a signature. Nonce and debit are one write (R30 to R34). */
export class PrepaidBalance implements PaymentFlow<PrepaidCredential> {
  readonly name = 'prepaid';
  readonly #db: Database;
  readonly #verifier: PrepaidVerifier;
  readonly #holds: HoldKeeper;
  readonly #grouped: GroupedStatement<WalletHoldRequest, WalletHoldResult | undefined>;
  readonly #placeAlone: ReturnType<typeof singleWalletHold>;
  readonly #audio: PrepaidAudio;
  readonly #replays: PrepaidReplays;

  constructor(verifier: PrepaidVerifier, replays: PrepaidReplays, audio: PrepaidAudio, parts: HoldKeeperParts) {
    const { db, leases } = parts;
    this.#db = db;
    this.#audio = audio;
    this.#replays = replays;
    this.#verifier = verifier;
    this.#holds = new HoldKeeper('prepaid', parts);
    const terms = { leaseSeconds: leases.seconds };
    this.#placeAlone = singleWalletHold(terms);
    const place = walletHoldStatement({ ...terms, locked: 'skip' });
    this.#grouped = new GroupedStatement({
      run: (requests) => place(db, requests),
      keyOf: (request) => request,
    });
  }

  credentialOf(headers: Readonly<Record<string, string | undefined>>) {
    return readPrepaidHeaders(headers);
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
  ): Promise<Held<PrepaidHold> | Refused<PrepaidCode>> {
    const digest = requestDigest(credential, request);
    if (!this.#verifier.isSignedByAccount(credential, signedRequestOf(request))) return this.#unauthorized(credential);
    const { account: address, nonce, expiry, maxAmountMicroUsd } = credential;
    const isWithinMaximum = priceMicroUsd <= maxAmountMicroUsd;
    const asked = { address, nonce, digest, expiry, amountMicroUsd: priceMicroUsd, isWithinMaximum, usage };
    const result = await this.#holds.place(address, (id) => this.#place({ id, ...asked }), {
      receiptOf,
      log: request.log,
      onDelivered: ({ id }, audio) => audio && this.#audio.store(id, audio, request.log),
    });
    if (result.outcome === 'held') return result;
    // Over a limit, an identical repetition still learns its outcome.
    if (result.outcome === 'refused') return (await this.#replays.ofIdentical(credential, digest)) ?? result;
    const { placed } = result;
    if (placed.outcome === 'expiry') return EXPIRY_REFUSED;
    if (placed.outcome !== 'nonce_spent') return refuse(placed, isWithinMaximum);
    return (await this.#replays.ofIdentical(credential, digest)) ?? replayed(placed.balanceMicroUsd);
  }

  /** Reads a balance without spending the nonce (R31). Refuses another address's credential before any read. */
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

  async #place(request: WalletHoldRequest): Promise<WalletHoldResult> {
    return (await this.#grouped.execute(request)) ?? this.#placeAlone(this.#db, request);
  }

  /** An expiry out of range is reported first, regardless of the signer (R30). */
  #unauthorized({ expiry }: PrepaidCredential): Refused<'UNAUTHORIZED' | 'INVALID_REQUEST'> {
    const unauthorized = refused('UNAUTHORIZED', 'signature', { credential: 'failed' });
    const explain = async () => ((await isInTime(this.#db, expiry)) ? unauthorized : EXPIRY_REFUSED);
    return { ...unauthorized, explain };
  }
}

/** Reads the five headers: all or none (R30). */
export function readPrepaidHeaders(headers: Readonly<Record<string, string | undefined>>) {
  const missing = PREPAID.headers.find((name) => headers[name] === undefined);
  if (missing !== undefined) {
    const message = `${missing} is missing. A prepaid request carries ${PREPAID.headers.join(', ')}.`;
    return malformed(missing, 'required', message);
  }
  const compact = compactFault('x-x402-signature', headers['x-x402-signature']);
  if (compact) return malformed('x-x402-signature', '65 bytes', compact);
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

/** Why the owner's spend was refused. Only the owner may see the balance (R32). */
function refuse(
  placed: Exclude<WalletHoldResult, { outcome: 'held' | 'expiry' | 'nonce_spent' }>,
  isWithinMaximum: boolean,
): Refused<PrepaidCode> {
  if (placed.outcome === 'unknown_account') {
    const unknown = { credential: 'failed', balanceMicroUsd: 0n, receipt: receiptOf(0n, 0n) } as const;
    return refused('PAYMENT_REQUIRED', 'never_deposited', unknown);
  }
  const { balanceMicroUsd } = placed;
  const known = { credential: 'verified', balanceMicroUsd, receipt: receiptOf(balanceMicroUsd, 0n) } as const;
  return refused('PAYMENT_REQUIRED', isWithinMaximum ? 'insufficient_funds' : 'over_max_amount', known);
}

type ReplayRefused = Refused<'PREPAID_NONCE_REPLAYED'>;

/** The refusals of spent nonces. Only a repetition of the identical request learns the outcome (R60). */
export class PrepaidReplays {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async find(credential: PrepaidCredential, request: RawRequest): Promise<ReplayRefused | NewRequest> {
    const replay = await this.ofIdentical(credential, requestDigest(credential, request));
    if (replay) return replay;
    // A nonce that was pruned since proves nothing (R34).
    const isKept = await isNonceKept(this.#db, credential.expiry);
    return { outcome: 'new', payment: isKept ? NOTHING_CHARGED : { state: 'unknown' } };
  }

  /** Checks no signature: the digest covers it, so an identical request has the signature that was verified then. */
  async ofIdentical({ account, nonce }: PrepaidCredential, digest: Buffer): Promise<ReplayRefused | undefined> {
    const spend = await findSpend(this.#db, account, nonce, digest);
    if (!spend) return undefined;
    const { balanceMicroUsd, state, holdId } = spend;
    const payment = moneyOf(spend);
    return replayed(balanceMicroUsd, { repeated: { state, holdId, payment }, payment });
  }
}

const replayed = (balanceMicroUsd: bigint, more: Pick<Refused, 'repeated' | 'payment'> = {}): ReplayRefused =>
  refused('PREPAID_NONCE_REPLAYED', 'nonce_spent', {
    credential: 'verified',
    balanceMicroUsd,
    receipt: receiptOf(balanceMicroUsd, 0n),
    ...more,
  });

function moneyOf({ state, amountMicroUsd }: PreviousDebit) {
  switch (state) {
    case 'pending':
      return unknownPayment(amountMicroUsd);
    case 'charged':
      return chargedPayment(amountMicroUsd);
    case 'restored':
      return NOTHING_CHARGED;
  }
}
