import { createHash } from 'node:crypto';
import { createTokenSigner } from '../../lib/signed-token.ts';

export const MAX_TOKEN_LENGTH = 1500;

export type LinkPurpose = 'job-audio' | 'prepaid-audio';

/** Signs and verifies the `sig` of audio links (R50). Tokens of another purpose are invalid. */
export interface LinkSigner {
  /** Returns a token that opens the audio of this id until then. @throws RangeError if it is over MAX_TOKEN_LENGTH */
  sign(id: string, expiresAt: Date): Promise<string>;
  /** Whether the token opens this audio now; false for anything else. */
  verify(token: string, id: string): Promise<boolean>;
}

interface Claims {
  readonly aud: string;
  readonly sub: string;
  readonly exp: number;
}

/** Tokens have one spelling, because each has its own rate limit (R48). @param secrets the first signs, all verify */
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

function keyId(secret: string): string {
  return createHash('sha256').update('speechgate job link\0').update(secret).digest().toString('base64url', 0, 8);
}
