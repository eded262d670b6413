import type { TtsModelsResponse, Quote as WireQuote } from '../../contract/types.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { type Api, readJson, type Shape, type Wire } from './api.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service, Terms } from './payment-way.ts';
import { unknownModel } from './service-error.ts';
import type { SpeechOrder } from './speech.ts';
import type { Metadata } from './trusted-metadata.ts';
import { withDeadline } from './waiting.ts';

const CACHE_MS = 60_000;
const MIN_SPEECH_TIMEOUT_MS = 120_000;
/** Longer than the service's own timeout for its provider. */
const SPEECH_TIMEOUT_MARGIN_MS = 30_000;
const MAX_SPEECH_TIMEOUT_SECONDS = 3600;
const LIMITS_DEADLINE_MS = 5_000;
const VOICE: Shape = { id: 'string', voice: 'string', name: 'string' };
export const VOICES: Shape = { model: 'string', voices: [VOICE] };
const MODEL: Shape = {
  id: 'string',
  name: 'string',
  description: 'string',
  maxInputCharacters: 'number',
  defaultVoice: 'string',
  pricing: { ratePerCharUsd: 'number', ratePerMillionCharsUsd: 'number' },
  voices: [VOICE],
  available: 'boolean',
};
const MODELS: Shape = { defaultModel: 'string', models: [MODEL] };
const QUOTE: Shape = {
  quoteToken: 'string',
  textLength: 'number',
  textSha256: 'string',
  model: 'string',
  amountMicroUsd: 'amount',
  network: 'string',
  payTo: 'string',
  expiresAt: 'string',
};

export type Quote = Omit<Wire<WireQuote>, 'amountMicroUsd'> & { readonly amountMicroUsd: bigint };

/** What the service publishes about its speech, cached. */
export class Catalog {
  readonly #api: Api;
  #cached: { readonly at: number; readonly models: Wire<TtsModelsResponse> } | undefined;
  #serviceTimeoutMs: number | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  async read(signal?: AbortSignal): Promise<Wire<TtsModelsResponse>> {
    const models = await readJson(signal, MODELS, (signal) => this.#api.GET('/tts/models', { signal }));
    this.#cached = { at: Date.now(), models };
    return models;
  }

  async modelOf(order: { readonly model?: string }, signal?: AbortSignal): Promise<string> {
    return order.model ?? (await this.#recent(signal)).defaultModel;
  }

  /** In 10^-12 USD per character. @throws InvalidRequestError when there is no such model */
  async rateOf(model: string, signal?: AbortSignal): Promise<bigint> {
    const found = (await this.#recent(signal)).models.find(({ id }) => id === model);
    if (!found) throw unknownModel(model);
    return picoUsd(found.pricing.ratePerCharUsd.toFixed(12));
  }

  /** For a response with audio. */
  async speechTimeoutMs(signal: AbortSignal | undefined): Promise<number> {
    this.#serviceTimeoutMs ??= await this.#readServiceTimeoutMs(signal).catch(() => undefined);
    return Math.max(MIN_SPEECH_TIMEOUT_MS, (this.#serviceTimeoutMs ?? 0) + SPEECH_TIMEOUT_MARGIN_MS);
  }

  async #readServiceTimeoutMs(signal: AbortSignal | undefined): Promise<number | undefined> {
    const { data } = await withDeadline(LIMITS_DEADLINE_MS, signal, (signal) => this.#api.GET('/docs', { signal }));
    const { limits } = (data ?? {}) as { limits?: { speechTimeoutSeconds?: unknown } };
    const seconds = limits?.speechTimeoutSeconds;
    const isUsable = typeof seconds === 'number' && seconds > 0 && seconds <= MAX_SPEECH_TIMEOUT_SECONDS;
    return isUsable ? seconds * 1000 : undefined;
  }

  async #recent(signal?: AbortSignal): Promise<Wire<TtsModelsResponse>> {
    const age = this.#cached ? Date.now() - this.#cached.at : Number.POSITIVE_INFINITY;
    return this.#cached && age >= 0 && age < CACHE_MS ? this.#cached.models : this.read(signal);
  }
}

export function picoUsd(decimal: string): bigint {
  const [, whole, fraction = ''] = /^(\d+)(?:\.(\d{1,12}))?$/.exec(decimal) ?? [];
  if (whole === undefined) throw new TypeError(`The service's price ${decimal} is not a number of US dollars.`);
  return BigInt(whole + fraction.padEnd(12, '0'));
}

/** In 10^-12 USD per character, by the signed metadata. @throws UntrustedError when it has no such model */
export function signedRate({ pricing }: Metadata, model: string): bigint {
  const found = pricing.models.find(({ id }) => id === model);
  if (!found)
    throw new UntrustedError(
      'unknown_model',
      `The signed metadata has no price for the model ${model}. Choose another model of GET /tts/models. Nothing was signed.`,
    );
  return picoUsd(found.ratePerCharacterUsd);
}

/** By the signed metadata where keys are pinned, else by the catalog. @throws InvalidRequestError, UntrustedError */
export async function rateOf(model: string, { catalog, metadata, signal }: Terms): Promise<bigint> {
  if (!metadata) return catalog.rateOf(model, signal);
  try {
    return await metadata.check((payload) => signedRate(payload, model), signal);
  } catch (error) {
    await catalog.rateOf(model, signal);
    throw error;
  }
}

/** The trimmed UTF-16 length times the rate, rounded up to a micro-USD (R1, R3). */
export const priceOf = (text: string, ratePicoUsd: bigint): bigint => priceMicroUsd(text.trim().length, ratePicoUsd);

/** Sends only length and SHA-256 of the text. */
export async function readQuote(order: SpeechOrder, service: Service, signal: AbortSignal | undefined): Promise<Quote> {
  const { text, ...voice } = order;
  const trimmed = text.trim();
  const model = await service.catalog.modelOf(order, signal);
  const body = { ...voice, model, textLength: trimmed.length, textSha256: await sha256(trimmed) };
  const data = await readJson(signal, QUOTE, (signal) => service.api.POST('/x402/tts/quote', { body, signal }));
  return { ...data, amountMicroUsd: BigInt(data.amountMicroUsd) };
}

export const readMicroUsd = (header: string | null): bigint | null =>
  header !== null && /^\d{1,18}$/.test(header) ? BigInt(header) : null;
