import { createSecretKey, type KeyObject } from 'node:crypto';
import { CompactSign, compactVerify, decodeProtectedHeader, errors, type JWTVerifyOptions, jwtVerify } from 'jose';

const ALGORITHM = 'HS256';

export interface TokenKind {
  /** What the header says that the token is; tokens that say anything else are not read. */
  readonly typ?: string;
  /**
   * Names the secret that has signed, without telling anything of it. Without, each of the secrets is tried.
   */
  readonly keyId?: (secret: string) => string;
}

/** Signs claims, and reads back what was signed here. */
export interface TokenSigner<Claims extends object> {
  sign(claims: Claims): Promise<string>;
  /**
   * The claims of a token; undefined when it was not made here, or has been changed.
   * @param rules what the registered claims (RFC 7519) must say; without, they may say anything
   */
  open(token: string, rules?: JWTVerifyOptions): Promise<Claims | undefined>;
}

/**
 * Tokens are compact JWS (RFC 7515) with HMAC-SHA-256 over JSON. What a token is for, `typ` or a claim has to say: one
 * secret may sign tokens of several kinds.
 * @param secrets at least one: the first signs, all verify
 */
export function createTokenSigner<Claims extends object>(
  secrets: readonly string[],
  { typ, keyId }: TokenKind,
): TokenSigner<Claims> {
  const keys = secrets.map((secret) => ({ key: createSecretKey(Buffer.from(secret)), kid: keyId?.(secret) }));
  const [signing] = keys;
  if (!signing) throw new TypeError('There is no secret to sign tokens with.');
  const header = { alg: ALGORITHM, ...(typ && { typ }), ...(signing.kid && { kid: signing.kid }) };

  return {
    sign: (claims) => new CompactSign(Buffer.from(JSON.stringify(claims))).setProtectedHeader(header).sign(signing.key),

    open: async (token, rules) => {
      if (!isCanonical(token)) return undefined;
      for (const key of candidates(token)) {
        try {
          if (rules) return (await jwtVerify<Claims>(token, key, { ...rules, algorithms: [ALGORITHM] })).payload;
          const { payload } = await compactVerify(token, key, { algorithms: [ALGORITHM] });
          return JSON.parse(Buffer.from(payload).toString());
        } catch (error) {
          if (!(error instanceof errors.JOSEError || error instanceof SyntaxError)) throw error;
        }
      }
      return undefined;
    },
  };

  function candidates(token: string): readonly KeyObject[] {
    try {
      const found = decodeProtectedHeader(token);
      if (found.typ !== typ) return [];
      return keys.filter(({ kid }) => kid === found.kid).map(({ key }) => key);
    } catch {
      return [];
    }
  }
}

/**
 * Whether the token is spelled in the one way that base64url has for its bytes. Decoders also take white space, padding
 * and stray last bits, so a token would have many spellings.
 */
function isCanonical(token: string): boolean {
  return token.split('.').every((part) => Buffer.from(part, 'base64url').toString('base64url') === part);
}
