export interface ServiceIdentity {
  readonly serviceName: string;
  readonly baseUrl: string;
}

/** Declared here because the client's type declarations must not import modules of the service. */
interface SignedChallenge {
  readonly wallet: string;
  readonly payloadSha256: string;
  readonly nonce: string;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
}

/** What the wallet signs (R38). */
export function signingMessage(
  { serviceName, baseUrl }: ServiceIdentity,
  challenge: SignedChallenge,
  category: string,
): string {
  return [
    `Sign this message to send your feedback to ${serviceName}.`,
    '',
    'It proves that the feedback comes from your wallet. It costs nothing and authorizes no payment.',
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
