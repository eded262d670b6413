export interface ServiceIdentity {
  readonly serviceName: string;
  readonly baseUrl: string;
}

/** What binds a signature to one piece of feedback. */
interface SignedChallenge {
  readonly wallet: string;
  readonly payloadSha256: string;
  readonly nonce: string;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
}

/** What the wallet's owner reads and signs. The same challenge and category always make the same text. */
export function signingMessage(
  { serviceName, baseUrl }: ServiceIdentity,
  challenge: SignedChallenge,
  category: string,
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
