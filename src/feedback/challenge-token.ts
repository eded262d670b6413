import { createTokenSigner } from '../crypto/signed-token.ts';
import type { Challenge } from './feedback-challenge.ts';

/** Says what a token is for, so that none that was signed for anything else is a challenge. */
const AUDIENCE = 'feedback';

/** Turns challenges into tokens that only this service can make, so that nothing is stored until one is used. */
export interface ChallengeSigner {
  sign(challenge: Challenge): Promise<string>;
  /** The challenge, whatever its age; undefined when the token was not made here, or has been changed. */
  open(token: string): Promise<Challenge | undefined>;
}

type Claims = Omit<Challenge, 'issuedAt' | 'expiresAt'> & Record<'aud' | 'issuedAt' | 'expiresAt', string>;

/** @param secrets those of `FEEDBACK_SECRET`, at least one: the first signs, all verify */
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
