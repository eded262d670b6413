import type { FeedbackContent } from './content.ts';
import type { Challenge } from './feedback-challenge.ts';

export interface ServiceIdentity {
  readonly serviceName: string;
  readonly baseUrl: string;
}

/** What the wallet's owner reads and signs. The same challenge and category always make the same text. */
export function signingMessage(
  { serviceName, baseUrl }: ServiceIdentity,
  challenge: Challenge,
  category: FeedbackContent['category'],
): string {
  return [
    `Sign this message to send your feedback to ${serviceName}.`,
    '',
    'It proves that the feedback comes from your wallet. It costs nothing and allows no payment.',
    '',
    `Service: ${serviceName} (${baseUrl})`,
    `Wallet: ${challenge.wallet}`,
    `Category: ${category}`,
    `Feedback SHA-256: ${challenge.payloadSha256}`,
    `Nonce: ${challenge.nonce}`,
    `Issued: ${challenge.issuedAt.toISOString()}`,
    `Expires: ${challenge.expiresAt.toISOString()}`,
  ].join('\n');
}
