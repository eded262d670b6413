import { createSecretKey, type KeyObject } from 'node:crypto';
import { CompactSign, compactVerify, decodeProtectedHeader, errors, type JWTVerifyOptions, jwtVerify } from 'jose';

const ALGORITHM = 'HS256';

export interface TokenKind {
  readonly typ?: string;
  readonly keyId?: (secret: string) => string;
}

export interface TokenSigner<Claims extends object> {
  sign(claims: Claims): Promise<string>;
  /** Returns undefined for a token that was not signed here. @param rules for the registered claims (RFC 7519) */
  open(token: string, rules?: JWTVerifyOptions): Promise<Claims | undefined>;
}

/**
 * Tokens of quotes (R29), audio links and feedback challenges: compact JWS with HMAC-SHA-256. `typ` or a claim must name
 * the purpose.
 * @param secrets the first signs, all verify
 */
export function createTokenSigner<Claims extends object>(
  secrets: readonly string[],
  { typ, keyId }: TokenKind,
): TokenSigner<Claims> {
  const keys = secrets.map((secret) => ({ key: createSecretKey(Buffer.from(secret)), kid: keyId?.(secret) }));
  const [signing] = keys;
  if (!signing) throw new TypeError('createTokenSigner needs at least one secret.');
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

/** Decoders also accept white space, padding and stray last bits, so that a token would have many spellings. */
function isCanonical(token: string): boolean {
  return token.split('.').every((part) => Buffer.from(part, 'base64url').toString('base64url') === part);
}
