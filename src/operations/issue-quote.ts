import type { CreateQuoteResult } from '../contract/operations.ts';
import type { QuoteRequest } from '../contract/types.ts';
import { errorBody } from '../http/structured-error.ts';
import { formatUsd } from '../lib/money.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRefusal, refuseTooLong, type Selection, select } from '../speech/order.ts';
import { priceMicroUsd } from '../speech/price.ts';
import type { Asset } from '../x402/network.ts';
import { currentPayee, type Payee } from '../x402/payees.ts';
import type { Quotes } from '../x402/quotes.ts';

/** What a quote is asked for; every violation is a 400 here (R8). */
export function selectQuoted(catalog: Catalog, body: QuoteRequest) {
  const selected = select(catalog, body);
  if (selected.outcome === 'refused') return refuse(selected);
  const tooLong = refuseTooLong('textLength', body.textLength, selected.selection.model);
  return tooLong ? refuse(tooLong) : selected;
}

const refuse = <Code extends OrderRefusal['code']>({ code, message, details }: OrderRefusal & { code: Code }) => ({
  status: 400 as const,
  body: errorBody(code, message, details),
});

/** Signs a quote for text of that length and digest, at the catalog's price (R29). */
export async function issueQuote(
  { quotes, terms }: { quotes: Quotes; terms: { readonly asset: Asset; readonly payees: readonly Payee[] } },
  { model, voice, speed }: Selection,
  { textLength, textSha256 }: QuoteRequest,
): Promise<CreateQuoteResult> {
  const { quote, token } = await quotes.issue({
    textLength,
    textSha256: textSha256.toLowerCase(),
    model: model.id,
    voice: voice.id,
    speed,
    amountMicroUsd: priceMicroUsd(textLength, model.ratePicoUsd),
    network: terms.asset.network,
    payTo: currentPayee(terms.payees).address,
  });
  const { issuedAt, expiresAt, amountMicroUsd, ...rest } = quote;
  return {
    status: 200,
    body: {
      ...rest,
      quoteToken: token,
      amountMicroUsd,
      amountUsd: formatUsd(amountMicroUsd),
      issuedAt: new Date(issuedAt * 1000).toISOString(),
      expiresAt: new Date(expiresAt * 1000).toISOString(),
      paymentEndpoint: '/x402/tts',
    },
  };
}
