import type { FeedbackOperations } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import type { ChallengeSigner } from '../feedback/challenge-token.ts';
import { feedbackContent } from '../feedback/content.ts';
import { issueChallenge } from '../feedback/feedback-challenge.ts';
import { MAX_PER_DAY, type RecordOptions } from '../feedback/record.ts';
import { type ServiceIdentity, signingMessage } from '../feedback/signing-message.ts';
import { submitFeedback } from '../feedback/submit.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';

export interface FeedbackOptions extends ServiceIdentity {
  readonly db: Database;
  /** Undefined while feedback is off (R47). */
  readonly feedback:
    | (RecordOptions & { readonly signer: ChallengeSigner; readonly challengeTtlSeconds: number })
    | undefined;
}

/** Feedback that a wallet signs. */
export function feedbackOperations(options: FeedbackOptions): FeedbackOperations<OperationContext> {
  const { db, feedback } = options;

  const off = () => failure('CONFIG_ERROR', 'Feedback is not set up here.', { setting: 'FEEDBACK_SECRET' });

  return {
    createFeedbackChallenge: async ({ body }, context) => {
      if (!feedback) return off();
      const limited = await context.admission.take('request');
      if (limited) return limited;
      const content = feedbackContent(body);
      const challenge = await issueChallenge(db, content, feedback.challengeTtlSeconds);
      return {
        status: 200,
        body: {
          challenge: await feedback.signer.sign(challenge),
          wallet: challenge.wallet,
          nonce: challenge.nonce,
          issuedAt: challenge.issuedAt.toISOString(),
          expiresAt: challenge.expiresAt.toISOString(),
          payloadSha256: challenge.payloadSha256,
          signingMessage: signingMessage(options, challenge, content.category),
        },
      };
    },

    submitFeedback: async ({ body }, context) => {
      if (!feedback) return off();
      const limited = await context.admission.take('request');
      if (limited) return limited;
      const result = await submitFeedback(
        { ...options, ...feedback },
        {
          content: feedbackContent(body),
          token: body.challenge,
          signature: body.signature,
          traceId: context.traceId,
        },
      );
      switch (result.outcome) {
        case 'stored': {
          const { feedbackId, receivedAt } = result;
          const { notification } = feedback;
          return { status: 201, body: { feedbackId, receivedAt: receivedAt.toISOString(), notification } };
        }
        case 'challenge_invalid':
          return failure(
            'FEEDBACK_CHALLENGE_INVALID',
            'challenge was not made by this service, or was changed. Send the one of POST /feedback/challenge as it is.',
            { field: 'challenge', rule: 'genuine' },
          );
        case 'payload_mismatch':
          return failure(
            'FEEDBACK_PAYLOAD_MISMATCH',
            'The challenge was made for other feedback. wallet, message, category and details must be those of ' +
              'POST /feedback/challenge; a changed text needs a new challenge.',
            { rule: 'payloadSha256', fields: ['wallet', 'message', 'category', 'details'] },
          );
        case 'signature_invalid':
          return failure(
            'FEEDBACK_SIGNATURE_INVALID',
            'signature is not one of this wallet over signingMessage. Sign that text exactly, with EIP-191 ' +
              'personal_sign, and send 65 bytes in hexadecimal, 0x in front.',
            { field: 'signature', rule: 'signer', scheme: 'EIP-191 personal_sign', bytes: 65 },
          );
        case 'replayed':
          return failure(
            'FEEDBACK_CHALLENGE_REPLAYED',
            'The challenge was used before, so this feedback is stored. Get a new challenge to send more.',
            { field: 'challenge', rule: 'once' },
          );
        case 'expired':
          return failure(
            'FEEDBACK_CHALLENGE_EXPIRED',
            'The challenge has expired. Get a new one from POST /feedback/challenge and sign that.',
            { field: 'challenge', rule: 'expiry', expiresAt: result.expiresAt.toISOString() },
          );
        case 'too_many': {
          const { retryAfterSeconds } = result;
          const [limit, windowSeconds, who] =
            result.of === 'wallet'
              ? [MAX_PER_DAY, 86_400, `This wallet has sent ${MAX_PER_DAY} pieces of feedback within 24 hours.`]
              : [feedback.maxPerHour, 3600, 'Too much feedback has arrived within an hour, from all wallets together.'];
          const message = `${who} Wait as Retry-After says; the challenge stays usable until it expires.`;
          const details = { limit, windowSeconds, retryAfterSeconds };
          return {
            ...failure('FEEDBACK_RATE_LIMITED', message, details),
            headers: { 'retry-after': retryAfterSeconds },
          };
        }
      }
    },
  };
}
