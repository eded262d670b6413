import type { FeedbackOperations } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { issueChallenge } from '../../feedback/challenge-token.ts';
import { feedbackContent } from '../../feedback/content.ts';
import { type ServiceIdentity, signingMessage } from '../../feedback/signing-message.ts';
import { MAX_PER_DAY, type SubmitOptions, submitFeedback } from '../../feedback/submit.ts';
import { counted } from '../../lib/counted.ts';
import { compactFault } from '../../lib/wallet-signature.ts';
import { FEEDBACK_OFF } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';

export interface FeedbackOptions extends ServiceIdentity {
  readonly db: Database;
  readonly feedback:
    | (Pick<SubmitOptions, 'signer' | 'notification' | 'maxPerHour'> & { readonly challengeTtlSeconds: number })
    | undefined;
}

/** Challenges, and feedback that a wallet has signed (R38). */
export function feedbackOperations(options: FeedbackOptions): FeedbackOperations<OperationContext> {
  const { db, feedback } = options;

  return {
    createFeedbackChallenge: async ({ body }, context) => {
      if (!feedback) return FEEDBACK_OFF;
      const limited = await context.rateLimits.take('request');
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
      if (!feedback) return FEEDBACK_OFF;
      const limited = await context.rateLimits.take('request');
      if (limited) return limited;
      const { challenge: token, signature } = body;
      const submission = { content: feedbackContent(body), token, signature, traceId: context.traceId };
      const result = await submitFeedback({ ...options, ...feedback }, submission);
      switch (result.outcome) {
        case 'stored': {
          const { feedbackId, receivedAt } = result;
          const { notification } = feedback;
          return { status: 201, body: { feedbackId, receivedAt: receivedAt.toISOString(), notification } };
        }
        case 'expired':
          return failure(
            'FEEDBACK_CHALLENGE_EXPIRED',
            'challenge has expired. Get a new one from POST /feedback/challenge and sign its signingMessage.',
            { field: 'challenge', rule: 'expiry', expiresAt: result.expiresAt.toISOString() },
          );
        case 'too_many': {
          const { retryAfterSeconds } = result;
          const [limit, windowSeconds, who] =
            result.of === 'wallet'
              ? [
                  MAX_PER_DAY,
                  86_400,
                  `This wallet has sent ${MAX_PER_DAY} feedback messages within 24 hours, which is the limit.`,
                ]
              : [feedback.maxPerHour, 3600, 'All wallets together have sent too much feedback within an hour.'];
          const message = `${who} Retry in ${counted(retryAfterSeconds, 'second')}; the challenge stays usable until it expires.`;
          const details = { limit, windowSeconds, retryAfterSeconds };
          return {
            ...failure('FEEDBACK_RATE_LIMITED', message, details),
            headers: { 'retry-after': retryAfterSeconds },
          };
        }
        case 'signature_invalid': {
          const compact = compactFault('signature', signature);
          return compact
            ? failure('FEEDBACK_SIGNATURE_INVALID', compact, { field: 'signature', rule: '65 bytes' })
            : REFUSALS.signature_invalid;
        }
        default:
          return REFUSALS[result.outcome];
      }
    },
  };
}

const REFUSALS = {
  challenge_invalid: failure(
    'FEEDBACK_CHALLENGE_INVALID',
    'challenge was not issued by this service, or was changed. Send the one from POST /feedback/challenge unchanged, or get a new one.',
    { field: 'challenge', rule: 'genuine' },
  ),
  payload_mismatch: failure(
    'FEEDBACK_PAYLOAD_MISMATCH',
    'challenge was made for other feedback. Send the same wallet, message, category and details as to ' +
      'POST /feedback/challenge, or get a new challenge.',
    { rule: 'payloadSha256', fields: ['wallet', 'message', 'category', 'details'] },
  ),
  signature_invalid: failure(
    'FEEDBACK_SIGNATURE_INVALID',
    'signature was not made by this wallet for signingMessage. Sign that text exactly, with EIP-191 ' +
      'personal_sign, and send the 65 bytes in hexadecimal, with 0x in front.',
    { field: 'signature', rule: 'signer', scheme: 'EIP-191 personal_sign', bytes: 65 },
  ),
  replayed: failure(
    'FEEDBACK_CHALLENGE_REPLAYED',
    'The challenge was used before, so this feedback is stored. Get a new challenge to send more.',
    { field: 'challenge', rule: 'once' },
  ),
};
