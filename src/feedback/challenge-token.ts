import { createSecretKey } from 'node:crypto';
import { CompactSign, compactVerify, errors } from 'jose';
import type { Challenge } from './challenge.ts';

const ALGORITHM = 'HS256';
/** Says what a token is for, so that none that was signed for anything else is a challenge. */
const AUDIENCE = 'feedback';

/** Turns challenges into tokens that only this service can make, so that nothing is stored until one is used. */
export interface ChallengeSigner {
  sign(challenge: Challenge): Promise<string>;
  /** The challenge, whatever its age; undefined when the token was not made here, or has been changed. */
  open(token: string): Promise<Challenge | undefined>;
}

/**
 * Tokens are compact JWS (RFC 7515) with HMAC-SHA-256.
 * @param secrets those of `FEEDBACK_SECRET`, at least one: the first signs, all verify
 */
export function createChallengeSigner(secrets: readonly string[]): ChallengeSigner {
  const keys = secrets.map((secret) => createSecretKey(Buffer.from(secret)));
  const [signingKey] = keys;
  if (!signingKey) throw new TypeError('There is no secret to sign challenges with.');

  return {
    sign: (challenge) =>
      new CompactSign(Buffer.from(JSON.stringify({ aud: AUDIENCE, ...challenge })))
        .setProtectedHeader({ alg: ALGORITHM })
        .sign(signingKey),

    open: async (token) => {
      if (!isCanonical(token)) return undefined;
      for (const key of keys) {
        try {
          const { payload } = await compactVerify(token, key, { algorithms: [ALGORITHM] });
          const { aud, issuedAt, expiresAt, ...rest } = JSON.parse(Buffer.from(payload).toString());
          if (aud !== AUDIENCE) return undefined;
          return { ...rest, issuedAt: new Date(issuedAt), expiresAt: new Date(expiresAt) };
        } catch (error) {
          if (!(error instanceof errors.JOSEError)) throw error;
        }
      }
      return undefined;
    },
  };
}

/** Whether the token is spelled as it was made: decoders of base64url also take padding, white space and stray bits. */
function isCanonical(token: string): boolean {
  return token.split('.').every((part) => Buffer.from(part, 'base64url').toString('base64url') === part);
}
