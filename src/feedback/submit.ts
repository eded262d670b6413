import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import type { ChallengeSigner } from './challenge-token.ts';
import { type FeedbackContent, payloadSha256 } from './content.ts';
import { recoverPersonalSigner } from './personal-sign.ts';
import { type RecordOptions, type RecordResult, recordFeedback } from './record.ts';
import { type ServiceIdentity, signingMessage } from './signing-message.ts';

export interface SubmitOptions extends ServiceIdentity, RecordOptions {
  readonly db: Database;
  readonly signer: ChallengeSigner;
}

export interface Submission {
  readonly content: FeedbackContent;
  /** The challenge's token. */
  readonly token: string;
  readonly signature: string;
  readonly traceId: string;
}

export type SubmitResult =
  | { readonly outcome: 'challenge_invalid' }
  | { readonly outcome: 'payload_mismatch' }
  | { readonly outcome: 'signature_invalid' }
  | Exclude<RecordResult, { outcome: 'expired' }>
  | { readonly outcome: 'expired'; readonly expiresAt: Date };

/**
 * Checks and stores feedback. What can be told without the database comes first; whether the challenge was used, or is
 * past its time, is told only to the wallet that signed. A used challenge is reported as used for as long as the feedback
 * is stored, so that a caller who missed the answer learns of it.
 */
export async function submitFeedback(options: SubmitOptions, submission: Submission): Promise<SubmitResult> {
  const { content, token, signature, traceId } = submission;
  const challenge = await options.signer.open(token);
  if (!challenge) return { outcome: 'challenge_invalid' };
  if (challenge.payloadSha256 !== payloadSha256(content)) return { outcome: 'payload_mismatch' };
  const message = signingMessage(options, challenge, content.category);
  if (recoverPersonalSigner(message, signature) !== content.wallet) return { outcome: 'signature_invalid' };
  const signed = { content, challenge, signingMessage: message, signature, traceId };
  const recorded = await recordFeedback(options.db, signed, options);
  testPoint('feedback stored');
  return recorded.outcome === 'expired' ? { ...recorded, expiresAt: challenge.expiresAt } : recorded;
}
