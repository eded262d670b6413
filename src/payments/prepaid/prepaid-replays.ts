import type { Database } from '../../db/database.ts';
import { findSpend, isNonceKept, type PreviousDebit } from '../../ledger/wallet-holds.ts';
import type { NewRequest } from '../payment-flow.ts';
import { chargedPayment, NOTHING_CHARGED, type Refused, refused, unknownPayment } from '../refusal.ts';
import { prepaidReceipt } from './prepaid-balance.ts';
import { type PrepaidCredential, type RawRequest, requestDigest } from './prepaid-credential.ts';

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

  async ofSpentNonce(credential: PrepaidCredential, digest: Buffer, balanceMicroUsd: bigint): Promise<ReplayRefused> {
    return (await this.ofIdentical(credential, digest)) ?? replayed(balanceMicroUsd);
  }

  /** Checks no signature: the digest covers it, so an identical request has the signature that was verified then. */
  async ofIdentical({ account, nonce }: PrepaidCredential, digest: Buffer): Promise<ReplayRefused | undefined> {
    const spend = await findSpend(this.#db, account, nonce, digest);
    if (!spend) return undefined;
    const { balanceMicroUsd, state, holdId } = spend;
    const payment = outcomeOfDebit(spend);
    return replayed(balanceMicroUsd, { replay: { state, holdId, payment }, payment });
  }
}

const replayed = (balanceMicroUsd: bigint, more: Pick<Refused, 'replay' | 'payment'> = {}): ReplayRefused =>
  refused('PREPAID_NONCE_REPLAYED', 'nonce_spent', {
    credential: 'verified',
    balanceMicroUsd,
    receipt: prepaidReceipt(balanceMicroUsd, 0n),
    ...more,
  });

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
