import { createHash, randomUUID } from 'node:crypto';
import { createTokenSigner, type TokenSigner } from '../crypto/signed-token.ts';
import type { Address } from './payees.ts';

/** What a quote binds (specification, "Quote"); `quoted-order.ts` holds a request against it. */
export interface QuoteTerms {
  readonly textLength: number;
  /** Lower case. */
  readonly textSha256: string;
  readonly model: string;
  readonly voice: string;
  readonly speed: number;
  readonly amountMicroUsd: bigint;
  readonly network: string;
  readonly payTo: Address;
}

export interface Quote extends QuoteTerms {
  readonly quoteId: string;
  /** Whole Unix seconds. */
  readonly issuedAt: number;
  /** Whole Unix seconds; from then on the quote is refused. */
  readonly expiresAt: number;
}

const TYPE = 'speechgate-quote';

/** The token's payload: short names, amounts as text. */
interface Claims {
  readonly jti: string;
  readonly iat: number;
  readonly exp: number;
  readonly len: number;
  readonly sha: string;
  readonly mod: string;
  readonly voi: string;
  readonly spd: number;
  readonly amt: string;
  readonly net: string;
  readonly pay: Address;
}

/** Issues quotes as tokens that only this service can make, and reads them back. */
export class Quotes {
  readonly #signer: TokenSigner<Claims>;
  readonly #ttlSeconds: number;

  /** @param secrets the first one signs, all of them verify */
  constructor(secrets: readonly [string, ...string[]], ttlSeconds: number) {
    this.#signer = createTokenSigner(secrets, { typ: TYPE, keyId });
    this.#ttlSeconds = ttlSeconds;
  }

  async issue(terms: QuoteTerms): Promise<{ quote: Quote; token: string }> {
    const issuedAt = Math.floor(Date.now() / 1000);
    const quote = { ...terms, quoteId: randomUUID(), issuedAt, expiresAt: issuedAt + this.#ttlSeconds };
    const token = await this.#signer.sign({
      jti: quote.quoteId,
      iat: quote.issuedAt,
      exp: quote.expiresAt,
      len: quote.textLength,
      sha: quote.textSha256,
      mod: quote.model,
      voi: quote.voice,
      spd: quote.speed,
      amt: String(quote.amountMicroUsd),
      net: quote.network,
      pay: quote.payTo,
    });
    return { quote, token };
  }

  /** The quote of a token, whether or not it has expired; undefined for a token that was not signed here. */
  async read(token: string): Promise<Quote | undefined> {
    const claims = await this.#signer.open(token);
    return (
      claims && {
        quoteId: claims.jti,
        issuedAt: claims.iat,
        expiresAt: claims.exp,
        textLength: claims.len,
        textSha256: claims.sha,
        model: claims.mod,
        voice: claims.voi,
        speed: claims.spd,
        amountMicroUsd: BigInt(claims.amt),
        network: claims.net,
        payTo: claims.pay,
      }
    );
  }
}

export const isExpired = (quote: Quote, nowMs: number): boolean => nowMs >= quote.expiresAt * 1000;

/** The digest that a quote binds, in lower case. The text is trimmed. */
export const textSha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Tells the secrets apart without telling anything of them. */
const keyId = (secret: string): string =>
  createHash('sha256').update(`speechgate quote key\0${secret}`).digest('base64url').slice(0, 12);
