import { createHash, randomUUID } from 'node:crypto';
import type { Catalog } from '../../config/catalog.ts';
import type { Asset } from '../../config/network.ts';
import { type Address, type Payee, payablePayees } from '../../config/payees.ts';
import { createTokenSigner, type TokenSigner } from '../../lib/signed-token.ts';
import { findModel, type Order, type OrderRefusal, refuseText } from '../../speech/order.ts';
import { priceMicroUsd } from '../../speech/price.ts';

interface QuoteTerms {
  readonly textLength: number;
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
  readonly issuedAt: number;
  readonly expiresAt: number;
}

const TYPE = 'speechgate-quote';

const claimsOf = (quote: Quote) => ({
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

/**
 * Quotes are signed and not stored. So one may be used again until it expires, after QUOTE_TTL_SECONDS (300), and each
 * use is charged (R29).
 */
export class Quotes {
  readonly #signer: TokenSigner<ReturnType<typeof claimsOf>>;
  readonly #ttlSeconds: number;

  constructor(secrets: readonly [string, ...string[]], ttlSeconds: number) {
    this.#signer = createTokenSigner(secrets, { typ: TYPE, keyId });
    this.#ttlSeconds = ttlSeconds;
  }

  async issue(terms: QuoteTerms): Promise<{ quote: Quote; token: string }> {
    const issuedAt = Math.floor(Date.now() / 1000);
    const quote = { ...terms, quoteId: randomUUID(), issuedAt, expiresAt: issuedAt + this.#ttlSeconds };
    return { quote, token: await this.#signer.sign(claimsOf(quote)) };
  }

  /** Returns the quote of a token, even an expired one; undefined for a token that was not signed here. */
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

export const textSha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Identifies a secret without revealing anything about it. */
const keyId = (secret: string): string =>
  createHash('sha256').update(`speechgate quote key\0${secret}`).digest('base64url').slice(0, 12);

export interface QuotedRequest {
  /** The unpaid request may leave it out; the paid one must send it. */
  readonly text?: string | undefined;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  readonly speed?: number | undefined;
}

export interface QuoteRefusal {
  readonly outcome: 'refused';
  readonly code: 'INVALID_QUOTE' | 'QUOTE_EXPIRED' | 'QUOTE_BODY_MISMATCH';
  readonly message: string;
  readonly details: Record<string, string | number>;
}

/** The quoted order at the quoted price (R29). */
export interface QuotedOrder extends Omit<Order, 'text' | 'ratePicoUsd'> {
  readonly text: string | undefined;
  readonly ratePicoUsd: bigint | null;
}

export const invalidQuote: QuoteRefusal = {
  outcome: 'refused',
  code: 'INVALID_QUOTE',
  message:
    'quoteToken is not, or is no longer, a valid quote of this service. Get a new one from POST /x402/tts/quote. You were not charged.',
  details: { field: 'quoteToken', rule: 'signature' },
};

export const expiredQuote: QuoteRefusal = {
  outcome: 'refused',
  code: 'QUOTE_EXPIRED',
  message: 'The quote in quoteToken has expired. Get a new one from POST /x402/tts/quote. You were not charged.',
  details: { field: 'quoteToken', rule: 'expiresAt' },
};

/**
 * Checks a request against its quote (R29); the text's length and digest only here, since a quote is issued without the
 * text. Doesn't check the expiry: a request that was paid in time may be repeated.
 */
export function placeQuotedOrder(
  { catalog, asset, payees }: { catalog: Catalog; asset: Asset; payees: readonly Payee[] },
  quote: Quote,
  request: QuotedRequest,
): { readonly outcome: 'placed'; readonly order: QuotedOrder } | QuoteRefusal | OrderRefusal {
  const model = findModel(catalog, quote.model);
  const voice = model?.voices.find(({ id }) => id === quote.voice);
  const isPayable = payablePayees(payees, new Date()).some(({ address }) => address === quote.payTo);
  if (!model || !voice || quote.network !== asset.network || !isPayable) return invalidQuote;

  for (const field of ['model', 'voice', 'speed'] as const) {
    if (request[field] !== undefined && request[field] !== quote[field]) return mismatch(field);
  }
  const text = request.text?.trim();
  if (text !== undefined) {
    const refusal = refuseText(text, model);
    if (refusal) return refusal;
    const isQuoted = text.length === quote.textLength && textSha256(text) === quote.textSha256;
    if (!isQuoted) return mismatch('text');
  }
  const { speed, textLength: characters, amountMicroUsd } = quote;
  const isAtThisRate = priceMicroUsd(characters, model.ratePicoUsd) === amountMicroUsd;
  const ratePicoUsd = isAtThisRate ? model.ratePicoUsd : null;
  return {
    outcome: 'placed',
    order: { model, voice, speed, text, characters, ratePicoUsd, priceMicroUsd: amountMicroUsd },
  };
}

const mismatch = (field: string): QuoteRefusal => ({
  outcome: 'refused',
  code: 'QUOTE_BODY_MISMATCH',
  message: `${field} differs from the quote. Send the quoted value, or get a new quote. You were not charged.`,
  details: { field, rule: 'quote' },
});
