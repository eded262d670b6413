import { createHash } from 'node:crypto';
import type { components } from '../contract/types.ts';
import { canonicalize } from '../lib/canonical-json.ts';

type Schemas = components['schemas'];
export type Details = Schemas['FeedbackDetails'];

export interface FeedbackContent {
  readonly wallet: string;
  readonly message: string;
  readonly category: Schemas['FeedbackCategory'];
  readonly details?: Details;
}

export const DETAILS = ['agent', 'endpoint', 'paymentFlow', 'errorCode', 'traceId', 'lastHttpStatus'] as const;

/** Keeps only the declared members of `details`; others are ignored (R51). */
export function feedbackContent(body: Schemas['FeedbackChallengeRequest']): FeedbackContent {
  const { wallet, message, category, details } = body;
  const declared =
    details && Object.fromEntries(DETAILS.filter((name) => name in details).map((name) => [name, details[name]]));
  return { wallet: wallet.toLowerCase(), message, category, ...(declared && { details: declared }) };
}

/** SHA-256 of the content's canonical JSON (RFC 8785), in lower-case hexadecimal (R38, R53). */
export function payloadSha256(content: FeedbackContent): string {
  return createHash('sha256').update(canonicalize(content)).digest('hex');
}
