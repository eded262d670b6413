import type { Catalog, Model, Voice } from './catalog.ts';
import { SPEED } from './limits.ts';
import { priceMicroUsd } from './price.ts';
import type { Utterance } from './provider.ts';

/** A text that is to be spoken: validated and priced, with nothing touched yet. */
export interface Order extends Selection {
  /** Trimmed (R2). */
  readonly text: string;
  /** UTF-16 code units of the trimmed text (R1). */
  readonly characters: number;
  /** In 10^-12 USD per character: what the price was made of. */
  readonly ratePicoUsd: bigint;
  readonly priceMicroUsd: bigint;
}

export interface OrderRequest {
  readonly text: string;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  /** A plain decimal when it is text, as in a query. */
  readonly speed?: number | string | undefined;
}

export interface OrderRefusal {
  readonly outcome: 'refused';
  readonly code: 'INVALID_REQUEST' | 'UNKNOWN_TTS_MODEL' | 'INVALID_VOICE' | 'INVALID_SPEED' | 'TEXT_TOO_LONG';
  readonly message: string;
  readonly details: Record<string, string | number | string[]>;
}

export type OrderResult = { readonly outcome: 'placed'; readonly order: Order } | OrderRefusal;

/** Finds the model by its provider-qualified id; the catalog's default when none is named. */
export function findModel(catalog: Catalog, id: string | undefined): Model | undefined {
  return id === undefined ? catalog.defaultModel : catalog.models.find((model) => model.id === id);
}

export function unknownModel(catalog: Catalog): OrderRefusal & { code: 'UNKNOWN_TTS_MODEL' } {
  return {
    outcome: 'refused',
    code: 'UNKNOWN_TTS_MODEL',
    message: 'model is not in the catalog. GET /tts/models lists the models.',
    details: { field: 'model', rule: 'enum', allowed: catalog.models.map((model) => model.id) },
  };
}

export interface Selection {
  readonly model: Model;
  readonly voice: Voice;
  readonly speed: number;
}

/** Validates what the contract can't of model, voice and speed, in this order (R7). */
export function select(
  catalog: Catalog,
  request: Omit<OrderRequest, 'text'>,
): { readonly outcome: 'selected'; readonly selection: Selection } | OrderRefusal {
  const model = findModel(catalog, request.model);
  if (!model?.available) return unknownModel(catalog);

  const voice =
    request.voice === undefined ? model.defaultVoice : model.voices.find((candidate) => candidate.id === request.voice);
  if (!voice) {
    return {
      outcome: 'refused',
      code: 'INVALID_VOICE',
      message: `voice is not a voice of ${model.id}. GET /tts/voices?model=${model.id} lists its voices.`,
      details: { field: 'voice', rule: 'enum', allowed: model.voices.map((candidate) => candidate.id) },
    };
  }

  const { min, max } = model.speed;
  const speed = readSpeed(request.speed, model.speed);
  if (speed === undefined) {
    return {
      outcome: 'refused',
      code: 'INVALID_SPEED',
      message: `speed must be a plain decimal from ${min} to ${max} for ${model.id}.`,
      details: { field: 'speed', rule: 'range', minimum: min, maximum: max },
    };
  }
  return { outcome: 'selected', selection: { model, voice, speed } };
}

/** Refuses a text that is over the model's cap (R4). @param field that tells its length */
export function refuseTooLong(
  field: 'text' | 'textLength',
  characters: number,
  { id, maxInputCharacters: maximum }: Model,
): (OrderRefusal & { code: 'TEXT_TOO_LONG' }) | undefined {
  if (characters <= maximum) return undefined;
  return {
    outcome: 'refused',
    code: 'TEXT_TOO_LONG',
    message: `text has ${characters} characters; ${id} takes up to ${maximum}. Split it.`,
    details: { field, rule: 'maxLength', maximum, characters },
  };
}

/** Validates what the contract can't (model, voice, speed, the model's cap, in this order, R7) and prices it. */
export function placeOrder(catalog: Catalog, request: OrderRequest): OrderResult {
  const selected = select(catalog, request);
  if (selected.outcome === 'refused') return selected;
  const { model } = selected.selection;
  const text = request.text.trim();
  const characters = text.length;
  const refusal = refuseTooLong('text', characters, model);
  if (refusal) return refusal;
  const { ratePicoUsd } = model;
  const price = priceMicroUsd(characters, ratePicoUsd);
  return {
    outcome: 'placed',
    order: { text, characters, ratePicoUsd, priceMicroUsd: price, ...selected.selection },
  };
}

/** What the provider is asked to speak. */
export const utteranceOf = ({ model, voice, speed }: Selection, text: string): Utterance => ({
  text,
  model: model.upstreamModel,
  voice: voice.upstreamVoice,
  speed,
  modelId: model.id,
});

function readSpeed(value: number | string | undefined, { min, max }: Model['speed']): number | undefined {
  if (value === undefined) return SPEED.default;
  const speed = typeof value === 'number' || /^\d+(\.\d+)?$/.test(value) ? Number(value) : Number.NaN;
  return speed >= min && speed <= max ? speed : undefined;
}
