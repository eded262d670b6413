import type { Catalog } from '../../config/catalog.ts';
import { currentPayee } from '../../config/payees.ts';
import type { CreateQuoteResult } from '../../contract/operations.ts';
import type { QuoteRequest } from '../../contract/types.ts';
import { formatUsd } from '../../lib/money.ts';
import type { PaymentTerms } from '../../payments/x402/challenge.ts';
import type { Quotes } from '../../payments/x402/quotes.ts';
import { type OrderRefusal, refuseTooLong, type Selection, select } from '../../speech/order.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { errorBody } from '../structured-error.ts';

export function selectQuoted(catalog: Catalog, body: QuoteRequest) {
  const selected = select(catalog, body);
  if (selected.outcome === 'refused') return refuse(selected);
  const tooLong = refuseTooLong('textLength', body.textLength, selected.selection.model);
  return tooLong ? refuse(tooLong) : selected;
}

/** Here a text that is too long is a 400 as well (R8). */
const refuse = <Code extends OrderRefusal['code']>({ code, message, details }: OrderRefusal & { code: Code }) =>
  ({ status: 400, body: errorBody(code, message, details) }) as const;

/** Signs a quote at the catalog's price (R29). The digest is lower case from here on. */
export async function issueQuote(
  quotes: Quotes,
  { asset, payees }: PaymentTerms,
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
    network: asset.network,
    payTo: currentPayee(payees).address,
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
