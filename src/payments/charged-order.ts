import type { PaidFor } from '../ledger/paid-for.ts';
import type { Model } from '../speech/catalog.ts';
import { priceMicroUsd } from '../speech/price.ts';

/** What a priced text is charged for. A quote's price stands when the catalog has another rate by now: then none is told. */
export function paidFor(
  order: { readonly text: string; readonly model: Pick<Model, 'ratePicoUsd'>; readonly priceMicroUsd: bigint },
  traceId: string,
): PaidFor {
  const characters = order.text.length;
  const { ratePicoUsd } = order.model;
  const isAtThisRate = priceMicroUsd(characters, ratePicoUsd) === order.priceMicroUsd;
  return { characters, ratePicoUsd: isAtThisRate ? ratePicoUsd : null, traceId };
}
