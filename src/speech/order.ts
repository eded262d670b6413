import type { Catalog, Model, Voice } from '../config/catalog.ts';
import { ASYNC_TEXT_LENGTH, SPEED } from '../config/speech-limits.ts';
import { priceMicroUsd } from './price.ts';
import type { Utterance } from './provider.ts';
import { splitText } from './split-text.ts';

export interface Order extends Selection {
  readonly text: string;
  /** UTF-16 code units of the trimmed text (R1, R2). */
  readonly characters: number;
  readonly ratePicoUsd: bigint;
  readonly priceMicroUsd: bigint;
}

export interface OrderRequest {
  readonly text: string;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  readonly speed?: number | string | undefined;
}

export interface OrderRefusal {
  readonly outcome: 'refused';
  readonly code: 'INVALID_REQUEST' | 'UNKNOWN_TTS_MODEL' | 'INVALID_VOICE' | 'INVALID_SPEED' | 'TEXT_TOO_LONG';
  readonly message: string;
  readonly details: Record<string, string | number | string[]>;
}

export type OrderResult = { readonly outcome: 'placed'; readonly order: Order } | OrderRefusal;

/** Without an id, the catalog's default model (R42). */
export function findModel(catalog: Catalog, id: string | undefined): Model | undefined {
  return id === undefined ? catalog.defaultModel : catalog.models.find((model) => model.id === id);
}

/** The catalog of a flow without jobs (R6). */
export function synchronousCatalog(catalog: Catalog): Catalog {
  const models = catalog.models.map((model) => ({
    ...model,
    maxInputCharacters: Math.min(model.maxInputCharacters, ASYNC_TEXT_LENGTH - 1),
  }));
  return { ...catalog, models, defaultModel: models[catalog.models.indexOf(catalog.defaultModel)] as Model };
}

const refused = <Code extends OrderRefusal['code']>(code: Code, message: string, details: OrderRefusal['details']) =>
  ({ outcome: 'refused', code, message, details }) as const;

export const unknownModel = (catalog: Catalog) =>
  refused('UNKNOWN_TTS_MODEL', 'model is not available. GET /tts/models lists the models. You were not charged.', {
    field: 'model',
    rule: 'enum',
    allowed: catalog.models.map((model) => model.id),
  });

export interface Selection {
  readonly model: Model;
  readonly voice: Voice;
  readonly speed: number;
}

/**
 * Validates what the contract can't of model, voice and speed, in this order, before any payment (R7, R8). The voice must be
 * one of the model's, by its whole id: a bare slug is none (R42).
 */
export function select(
  catalog: Catalog,
  request: Omit<OrderRequest, 'text'>,
): { readonly outcome: 'selected'; readonly selection: Selection } | OrderRefusal {
  const model = findModel(catalog, request.model);
  if (!model?.available) return unknownModel(catalog);

  const { id, voices, defaultVoice } = model;
  const voice = request.voice === undefined ? defaultVoice : voices.find((candidate) => candidate.id === request.voice);
  if (!voice) {
    const message = `voice does not exist for the model ${id}. GET /tts/voices?model=${id} lists its voices. You were not charged.`;
    const allowed = voices.map((candidate) => candidate.id);
    return refused('INVALID_VOICE', message, { field: 'voice', rule: 'enum', allowed });
  }

  const { min, max } = model.speed;
  const speed = readSpeed(request.speed, model.speed);
  if (speed === undefined) {
    const message =
      min === max
        ? `speed must be ${min} for the model ${id}. Send this value, or leave speed out. You were not charged.`
        : `speed must be a decimal number from ${min} to ${max} for the model ${id}. You were not charged.`;
    return refused('INVALID_SPEED', message, { field: 'speed', rule: 'range', minimum: min, maximum: max });
  }
  return { outcome: 'selected', selection: { model, voice, speed } };
}

/** Refuses a text over the model's cap (R4). @param field that gives the length */
export function refuseTooLong(
  field: 'text' | 'textLength',
  characters: number,
  { id, maxInputCharacters: maximum }: Model,
) {
  if (characters <= maximum) return undefined;
  const message = `text has ${characters} characters, but at most ${maximum} are accepted here for the model ${id}. Split the text. You were not charged.`;
  return refused('TEXT_TOO_LONG', message, { field, rule: 'maxLength', maximum, characters });
}

/** Refuses a text that is too long, or whose segments would be. */
export function refuseText(text: string, model: Model): OrderRefusal | undefined {
  const tooLong = refuseTooLong('text', text.length, model);
  if (tooLong) return tooLong;
  const { id, maxRequestCharacters: maximum } = model;
  const split = splitText(text, maximum);
  if (split.outcome === 'split') return undefined;
  const { offset } = split;
  const message = `text has no space between characters ${offset} and ${offset + maximum}, but the model ${id} accepts at most ${maximum} at once. Put a space there. You were not charged.`;
  return refused('INVALID_REQUEST', message, { field: 'text', rule: 'splittable', offset, maximum });
}

/** The parts in which a text is spoken that was not refused. */
export function partsOf(text: string, { maxRequestCharacters }: Model): readonly string[] {
  const split = splitText(text, maxRequestCharacters);
  return split.outcome === 'split' ? split.parts : [text];
}

export function placeOrder(catalog: Catalog, request: OrderRequest): OrderResult {
  const selected = select(catalog, request);
  if (selected.outcome === 'refused') return selected;
  const { model } = selected.selection;
  const text = request.text.trim();
  const characters = text.length;
  const refusal = refuseText(text, model);
  if (refusal) return refusal;
  const { ratePicoUsd } = model;
  const price = priceMicroUsd(characters, ratePicoUsd);
  const order = { text, characters, ratePicoUsd, priceMicroUsd: price, ...selected.selection };
  return { outcome: 'placed', order };
}

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
