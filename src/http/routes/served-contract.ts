import { fileURLToPath } from 'node:url';
import swagger from '@fastify/swagger';
import Fastify from 'fastify';
import type { Catalog } from '../../config/catalog.ts';
import type { Config } from '../../config/config.ts';
import type { Asset } from '../../config/network.ts';
import { MAX_QUERY_TEXT_LENGTH } from '../../config/speech-limits.ts';
import type { OpenApiDocument } from '../../contract/types.ts';
import { formatUsd } from '../../lib/money.ts';
import { PREPAID } from '../../payments/x402/prepaid-terms.ts';
import { synchronousCatalog } from '../../speech/order.ts';
import { priceMicroUsd } from '../../speech/price.ts';

type Deployment = Pick<Config, 'serviceName' | 'baseUrl' | 'contact' | 'catalog' | 'card' | 'x402'>;

/** Bounds of an operation's price in micro-USD, and its asset. */
interface Terms {
  readonly min: bigint;
  readonly max: bigint;
  readonly asset?: Asset;
}

/** `price` and `protocols` are for @agentcash/discovery (v1), `offers` for MPP (draft-payment-discovery-00). */
interface PaymentInfo {
  price: object;
  protocols: { x402?: object }[];
  offers: { currency?: string }[];
}

interface Described {
  info: Record<string, unknown>;
  'x-service-info': Record<string, unknown>;
  paths: Record<string, Record<string, { operationId: string; 'x-payment-info'?: PaymentInfo }>>;
  components: { schemas: Record<'ModelId' | 'VoiceId', { example: string }> };
}

/** Read once per process. */
let contract: Promise<OpenApiDocument> | undefined;

async function readContract(): Promise<OpenApiDocument> {
  const path = fileURLToPath(new URL('../../contract/openapi.json', import.meta.url));
  const server = Fastify();
  await server.register(swagger, { mode: 'static', specification: { path, baseDir: '' } });
  return server.swagger() as OpenApiDocument;
}

/** The contract with this deployment's origin, name, catalog and prices (R41). Throws if a paid operation's price is unknown. */
export async function servedContract(deployment: Deployment): Promise<OpenApiDocument> {
  contract ??= readContract();
  const served = { ...structuredClone(await contract), servers: [{ url: deployment.baseUrl }] };
  const { serviceName, baseUrl, contact, catalog } = deployment;
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
    if (!(operationId in terms)) throw new Error(`the payment terms of ${operationId} are missing`);
    const paid = terms[operationId];
    if (paid) fill(info, paid);
    else delete operation['x-payment-info'];
  }
  return served;
}

function termsOf({ catalog, card, x402 }: Deployment): Record<string, Terms | undefined> {
  // Without the chain there is no challenge (R58).
  const asset = x402?.rpcUrls && x402.asset;
  const inUsdc = (terms: Terms) => asset && { ...terms, asset };
  return {
    createSpeech: card && speechPrices(catalog),
    createX402Speech: inUsdc(speechPrices(synchronousCatalog(catalog))),
    getX402Speech: inUsdc(speechPrices(catalog, MAX_QUERY_TEXT_LENGTH)),
    createDeposit: inUsdc({ min: BigInt(PREPAID.minDepositMicroUsd), max: BigInt(PREPAID.maxDepositMicroUsd) }),
  };
}

/** From one character of the cheapest model to the longest text of the dearest. @param cap in characters */
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
