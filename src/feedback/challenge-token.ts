import { randomUUID } from 'node:crypto';
import type { Database } from '../db/database.ts';
import { clockTime } from '../db/expressions.ts';
import { createTokenSigner } from '../lib/signed-token.ts';
import { type FeedbackContent, payloadSha256 } from './content.ts';

const AUDIENCE = 'feedback';

export interface Challenge {
  readonly wallet: string;
  readonly payloadSha256: string;
  readonly nonce: string;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
}

/** Creates a challenge by the database's clock, which also judges its expiry. Nothing is stored (R38). */
export async function issueChallenge(db: Database, content: FeedbackContent, ttlSeconds: number): Promise<Challenge> {
  const clock = db.selectNoFrom(clockTime.as('issuedAt'));
  const { issuedAt } = await clock.executeTakeFirstOrThrow();
  return {
    wallet: content.wallet,
    payloadSha256: payloadSha256(content),
    nonce: randomUUID(),
    issuedAt,
    expiresAt: new Date(issuedAt.getTime() + ttlSeconds * 1000),
  };
}

/** Signs challenges as tokens, so that nothing is stored until one is used. */
export interface ChallengeSigner {
  sign(challenge: Challenge): Promise<string>;
  /** Returns the challenge, even an expired one; undefined for a forged or altered token. */
  open(token: string): Promise<Challenge | undefined>;
}

type Claims = Omit<Challenge, 'issuedAt' | 'expiresAt'> & Record<'aud' | 'issuedAt' | 'expiresAt', string>;

export function createChallengeSigner(secrets: readonly string[]): ChallengeSigner {
  const signer = createTokenSigner<Claims>(secrets, {});
  return {
    sign: ({ issuedAt, expiresAt, ...rest }) =>
      signer.sign({ aud: AUDIENCE, ...rest, issuedAt: issuedAt.toISOString(), expiresAt: expiresAt.toISOString() }),

    open: async (token) => {
      const claims = await signer.open(token);
      if (claims?.aud !== AUDIENCE) return undefined;
      const { aud, issuedAt, expiresAt, ...rest } = claims;
      return { ...rest, issuedAt: new Date(issuedAt), expiresAt: new Date(expiresAt) };
    },
  };
}
