import { sql } from 'kysely';
import { lockByNumber } from '../db/brief-locks.ts';
import type { Database } from '../db/database.ts';
import { keccak256 } from '../lib/keccak.ts';
import { testPoint } from '../lib/test-point.ts';
import { recoverAddress } from '../lib/wallet-signature.ts';
import type { Challenge, ChallengeSigner } from './challenge-token.ts';
import { type FeedbackContent, payloadSha256 } from './content.ts';
import { enqueueMail } from './outbox.ts';
import { type ServiceIdentity, signingMessage } from './signing-message.ts';

/** Per wallet within any 24 hours (R38). */
export const MAX_PER_DAY = 5;
/** Advisory lock that serializes submissions; no other lock of this database has this number. */
const SUBMISSION_LOCK = 7_300_006;

/** `queued` if mail is configured. It is sent later, so that no mail server can reject stored feedback. */
export type Notification = 'queued' | 'not_configured';

export interface SubmitOptions extends ServiceIdentity {
  readonly db: Database;
  readonly signer: ChallengeSigner;
  readonly notification: Notification;
  /** Stored per hour over all wallets: a wallet costs nothing, and people read the mail. */
  readonly maxPerHour: number;
}

export interface Submission {
  readonly content: FeedbackContent;
  readonly token: string;
  readonly signature: string;
  readonly traceId: string;
}

export type SubmitResult =
  | { readonly outcome: 'challenge_invalid' | 'payload_mismatch' | 'signature_invalid' | 'replayed' }
  | { readonly outcome: 'stored'; readonly feedbackId: string; readonly receivedAt: Date }
  | { readonly outcome: 'expired'; readonly expiresAt: Date }
  | { readonly outcome: 'too_many'; readonly of: 'wallet' | 'all'; readonly retryAfterSeconds: number };

/**
 * Stores feedback once per challenge, if the wallet signed it by EIP-191 (R38). Checks the signature first: only the
 * signing wallet learns whether the challenge was used or has expired.
 */
export async function submitFeedback(options: SubmitOptions, submission: Submission): Promise<SubmitResult> {
  const { content, token, signature } = submission;
  const challenge = await options.signer.open(token);
  if (!challenge) return { outcome: 'challenge_invalid' };
  if (challenge.payloadSha256 !== payloadSha256(content)) return { outcome: 'payload_mismatch' };
  const message = signingMessage(options, challenge, content.category);
  if (recoverPersonalSigner(message, signature) !== content.wallet) return { outcome: 'signature_invalid' };
  const recorded = await record(options, submission, challenge, message);
  testPoint('feedback stored');
  return recorded;
}

/** One transaction at a time, so that a challenge is used once and the limits are exact (R38). */
async function record(
  { db, notification, maxPerHour }: SubmitOptions,
  { content, signature, traceId }: Submission,
  challenge: Challenge,
  message: string,
): Promise<SubmitResult> {
  return db.transaction().execute(async (trx): Promise<SubmitResult> => {
    await lockByNumber(trx, SUBMISSION_LOCK);
    const { at, replayed, expired, wait, wait_of_all } = await readLimits(trx, challenge, maxPerHour);
    if (replayed) return { outcome: 'replayed' };
    if (expired) return { outcome: 'expired', expiresAt: challenge.expiresAt };
    if (wait !== null) return { outcome: 'too_many', of: 'wallet', retryAfterSeconds: wait };
    if (wait_of_all !== null) return { outcome: 'too_many', of: 'all', retryAfterSeconds: wait_of_all };
    const { id, received_at } = await trx
      .insertInto('feedback')
      .values({
        nonce: challenge.nonce,
        wallet: content.wallet,
        category: content.category,
        message: content.message,
        details: content.details === undefined ? null : JSON.stringify(content.details),
        signing_message: message,
        signature,
        trace_id: traceId,
        received_at: at,
        notification,
      })
      .returning(['id', 'received_at'])
      .executeTakeFirstOrThrow();
    testPoint('feedback written');
    if (notification === 'queued') await enqueueMail(trx, id);
    return { outcome: 'stored', feedbackId: id, receivedAt: received_at };
  });
}

interface SubmissionLimits {
  readonly at: string;
  readonly replayed: boolean;
  readonly expired: boolean;
  readonly wait: number | null;
  readonly wait_of_all: number | null;
}

async function readLimits(
  db: Database,
  { wallet, nonce, expiresAt }: Challenge,
  maxPerHour: number,
): Promise<SubmissionLimits> {
  const { rows } = await sql<SubmissionLimits>`
    with clock as materialized (select clock_timestamp() as at)
    select at::text as at,
           exists (select from feedback where nonce = ${nonce}::uuid) as replayed,
           at >= ${expiresAt}::timestamptz as expired,
           (select ceil(extract(epoch from received_at + interval '24 hours' - at))::int from feedback
            where wallet = ${wallet} and received_at > at - interval '24 hours'
            order by received_at desc offset ${MAX_PER_DAY - 1} limit 1) as wait,
           (select ceil(extract(epoch from received_at + interval '1 hour' - at))::int from feedback
            where received_at > at - interval '1 hour'
            order by received_at desc offset ${maxPerHour - 1} limit 1) as wait_of_all
    from clock`.execute(db);
  return rows[0] as SubmissionLimits;
}

/** Recovers the signer of a `personal_sign` signature (EIP-191, version 0x45) in lower case; undefined if invalid. */
export function recoverPersonalSigner(message: string, signature: string): string | undefined {
  const bytes = Buffer.from(message);
  const digest = keccak256(Buffer.concat([Buffer.from(`\x19Ethereum Signed Message:\n${bytes.length}`), bytes]));
  return recoverAddress(digest, signature);
}
