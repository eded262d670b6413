import { createHash } from 'node:crypto';
import { createTokenSigner } from '../crypto/signed-token.ts';

/** The longest `sig` of the specification, in characters. */
export const MAX_TOKEN_LENGTH = 1500;

/** What links are for: the audio of jobs, or that of prepaid requests whose answer did not arrive. */
export type LinkPurpose = 'job-audio' | 'prepaid-audio';

/** Signs and checks the `sig` of links to audio of one purpose; those of the other one open nothing. */
export interface LinkSigner {
  /**
   * A token that opens the audio of this job, or of this id, until then, in whole seconds rounded down.
   * @param expiresAt when the audio goes
   * @throws RangeError when it would be longer than the specification allows
   */
  sign(id: string, expiresAt: Date): Promise<string>;

  /** Whether the token opens this audio now. False for anything else; never throws. */
  verify(token: string, id: string): Promise<boolean>;
}

interface Claims {
  readonly aud: string;
  readonly sub: string;
  /** Whole Unix seconds. */
  readonly exp: number;
}

/**
 * The tokens' claims are the purpose as the audience, the audio's id and the expiry. They have one spelling, since each spelling of a link
 * would have a rate limit of its own (R48).
 * @param secrets those of `JOB_SIGNING_SECRET`, at least one: the first signs, all verify
 * @param now the clock
 */
export function createLinkSigner(
  purpose: LinkPurpose,
  secrets: readonly string[],
  now: () => Date = () => new Date(),
): LinkSigner {
  const signer = createTokenSigner<Claims>(secrets, { keyId });
  return {
    sign: async (id, expiresAt) => {
      const exp = Math.floor(expiresAt.getTime() / 1000);
      const token = await signer.sign({ aud: purpose, sub: id, exp });
      if (token.length > MAX_TOKEN_LENGTH) throw new RangeError('The id is too long for a token.');
      return token;
    },

    verify: async (token, id) => {
      if (token.length > MAX_TOKEN_LENGTH) return false;
      const rules = { audience: purpose, subject: id, requiredClaims: ['exp'], currentDate: now() };
      return (await signer.open(token, rules)) !== undefined;
    },
  };
}

/** Tells secrets apart without telling anything about them: 64 bits of a hash. */
function keyId(secret: string): string {
  return createHash('sha256').update('speechgate job link\0').update(secret).digest().toString('base64url', 0, 8);
}
