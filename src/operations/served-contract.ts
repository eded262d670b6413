import type { OpenApiDocument } from '../contract/types.ts';
import { formatUsd } from '../lib/money.ts';
import type { Config } from '../settings/config.ts';
import type { Catalog } from '../speech/catalog.ts';
import { MAX_QUERY_TEXT_LENGTH } from '../speech/limits.ts';
import { priceMicroUsd } from '../speech/price.ts';
import type { Asset } from '../x402/network.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';

/** What the contract tells of the deployment that serves it. */
type Deployment = Pick<Config, 'serviceName' | 'baseUrl' | 'contact' | 'catalog' | 'card' | 'x402'>;

/** What an operation is paid, and in what; both bounds in micro-USD. */
interface Terms {
  readonly min: bigint;
  readonly max: bigint;
  readonly asset?: Asset;
}

/**
 * `x-payment-info` of an operation. `price` and `protocols` are what @agentcash/discovery reads (its specification v1),
 * `offers` what MPP's directories do (draft-payment-discovery-00); each ignores the other's members.
 */
interface PaymentInfo {
  price: { mode: 'dynamic'; currency: string; min?: string; max?: string };
  protocols: Record<string, object>[];
  offers: { intent: string; method: string; amount: null; currency?: string; description: string }[];
}

interface Described {
  info: Record<string, unknown>;
  'x-service-info': Record<string, unknown>;
  paths: Record<string, Record<string, { operationId: string; 'x-payment-info'?: PaymentInfo }>>;
  components: { schemas: Record<'ModelId' | 'VoiceId', { example: string }> };
}

/**
 * The contract as a deployment serves it: its name, contact and catalog, and what each operation is paid. An operation
 * whose flow is off is not told as one that is paid.
 * @throws if an operation has `x-payment-info` whose price is not known here
 */
export function servedContract(contract: OpenApiDocument, deployment: Deployment): OpenApiDocument {
  const { serviceName, baseUrl, contact, catalog } = deployment;
  const served = structuredClone(contract);
  const document = served as unknown as Described;
  const guide = `${baseUrl}/docs`;
  Object.assign(document.info, { title: serviceName, contact: { name: serviceName, ...(contact ?? { url: guide }) } });
  document['x-service-info'].docs = { homepage: guide, apiReference: `${baseUrl}/openapi.json` };
  document.components.schemas.ModelId.example = catalog.defaultModel.id;
  document.components.schemas.VoiceId.example = catalog.defaultModel.defaultVoice.id;
  const terms = termsOf(deployment);
  for (const operation of Object.values(document.paths).flatMap((methods) => Object.values(methods))) {
    const info = operation['x-payment-info'];
    if (!info) continue;
    const { operationId } = operation;
    if (!(operationId in terms)) throw new Error(`what ${operationId} is paid is not known`);
    const paid = terms[operationId];
    if (paid) fill(info, paid);
    else delete operation['x-payment-info'];
  }
  return served;
}

/** By operationId; undefined while the operation's flow is off. */
function termsOf({ catalog, card, x402 }: Deployment): Record<string, Terms | undefined> {
  // Without the chain no challenge is handed out (R58).
  const asset = x402?.rpcUrls && x402.asset;
  const inUsdc = (terms: Terms) => asset && { ...terms, asset };
  return {
    createSpeech: card && speechPrices(catalog),
    createX402Speech: inUsdc(speechPrices(catalog)),
    getX402Speech: inUsdc(speechPrices(catalog, MAX_QUERY_TEXT_LENGTH)),
    createDeposit: inUsdc({ min: BigInt(PREPAID.minDepositMicroUsd), max: BigInt(PREPAID.maxDepositMicroUsd) }),
  };
}

/** From one character of the cheapest model to the longest text of the dearest one. @param cap in characters */
function speechPrices({ models }: Catalog, cap = Number.POSITIVE_INFINITY): Terms {
  const prices = models
    .filter(({ available }) => available)
    .flatMap(({ ratePicoUsd, maxInputCharacters }) => [
      priceMicroUsd(1, ratePicoUsd),
      priceMicroUsd(Math.min(maxInputCharacters, cap), ratePicoUsd),
    ])
    .sort((a, b) => (a < b ? -1 : 1));
  return { min: prices[0] ?? 0n, max: prices.at(-1) ?? 0n };
}

function fill(info: PaymentInfo, { min, max, asset }: Terms): void {
  Object.assign(info.price, { min: formatUsd(min), max: formatUsd(max) });
  if (!asset) return;
  const { network, address } = asset;
  for (const protocol of info.protocols) Object.assign(protocol.x402 ?? {}, { network, asset: address });
  for (const offer of info.offers) offer.currency = address;
}
