import { createHash, createSecretKey, type KeyObject } from 'node:crypto';
import { decodeProtectedHeader, jwtVerify, SignJWT } from 'jose';

/** The longest `sig` of the specification, in characters. */
export const MAX_TOKEN_LENGTH = 1500;

const ALGORITHM = 'HS256';
/** Says what a token is for, so that none that was signed for anything else opens audio. */
const AUDIENCE = 'job-audio';

/** Signs and checks the `sig` of links to a job's audio. */
export interface LinkSigner {
  /**
   * A token that opens the audio of this job until then, in whole seconds rounded down.
   * @throws RangeError when it would be longer than the specification allows
   */
  sign(jobId: string, expiresAt: Date): Promise<string>;

  /** Whether the token opens the audio of this job now. False for anything else; never throws. */
  verify(token: string, jobId: string): Promise<boolean>;
}

/**
 * Tokens are compact JWS (RFC 7515) with HMAC-SHA-256, whose claims are the audience, the job's id and the expiry.
 * @param secrets those of `JOB_SIGNING_SECRET`, at least one: the first signs, all verify
 * @param now the clock
 */
export function createLinkSigner(secrets: readonly string[], now: () => Date = () => new Date()): LinkSigner {
  const keys = new Map<string, KeyObject>(
    secrets.map((secret) => [keyId(secret), createSecretKey(Buffer.from(secret, 'utf8'))]),
  );
  const [signing] = keys;
  if (!signing) throw new TypeError('There is no secret to sign links with.');
  const [kid, signingKey] = signing;

  return {
    sign: async (jobId, expiresAt) => {
      const token = await new SignJWT()
        .setProtectedHeader({ alg: ALGORITHM, kid })
        .setAudience(AUDIENCE)
        .setSubject(jobId)
        .setExpirationTime(Math.floor(expiresAt.getTime() / 1000))
        .sign(signingKey);
      if (token.length > MAX_TOKEN_LENGTH) throw new RangeError('The job id is too long for a token.');
      return token;
    },

    verify: async (token, jobId) => {
      if (token.length > MAX_TOKEN_LENGTH || !isCanonical(token)) return false;
      try {
        const key = keys.get(decodeProtectedHeader(token).kid ?? '');
        if (!key) return false;
        await jwtVerify(token, key, {
          algorithms: [ALGORITHM],
          audience: AUDIENCE,
          subject: jobId,
          requiredClaims: ['exp'],
          currentDate: now(),
        });
        return true;
      } catch {
        return false;
      }
    },
  };
}

/**
 * Whether the token is spelled in the one way that base64url has for its bytes. Decoders also take white space, padding
 * and stray last bits, so a link would have many spellings, and each would have a rate limit of its own (R48).
 */
function isCanonical(token: string): boolean {
  return token.split('.').every((part) => Buffer.from(part, 'base64url').toString('base64url') === part);
}

/** Tells secrets apart without telling anything about them: 64 bits of a hash. */
function keyId(secret: string): string {
  return createHash('sha256').update('speechgate job link\0').update(secret).digest().toString('base64url', 0, 8);
}
