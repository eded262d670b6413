import { readFileSync } from 'node:fs';
import type { ErrorObject } from 'ajv';
import { compileSchema } from '../lib/json-schema.ts';
import { parseWithoutNulls } from '../lib/without-nulls.ts';
import {
  type CharactersPerSecond,
  type FileModel,
  type ModelUpstream,
  modelUpstreamsSchema,
  objectOf,
  type UpstreamServer,
  upstreamFaults,
  upstreamServersSchema,
  upstreamsOf,
} from './catalog-upstreams.ts';
import { SPEED } from './speech-limits.ts';

export interface Voice {
  readonly id: string;
  readonly slug: string;
  readonly name: string;
  readonly upstreamVoice: string;
}

export interface Model {
  readonly id: string;
  readonly provider: string;
  readonly name: string;
  readonly description: string;
  readonly upstreamModel: string;
  /** Price per character including markup, in 10^-12 USD (R3). */
  readonly ratePicoUsd: bigint;
  readonly maxInputCharacters: number;
  /** The longest request that an upstream of it takes. */
  readonly maxRequestCharacters: number;
  readonly defaultVoice: Voice;
  readonly voices: readonly Voice[];
  readonly available: boolean;
  readonly speed: { readonly min: number; readonly max: number };
  readonly upstreams: readonly ModelUpstream[];
  /** Audio outside of it, and silence, is a failure of its upstream. */
  readonly charactersPerSecond?: CharactersPerSecond | undefined;
}

export interface Catalog {
  /** Of a request that names no model (R42). */
  readonly defaultModel: Model;
  readonly models: readonly Model[];
  readonly upstreams: readonly UpstreamServer[];
  /** Longest silence of an upstream that has a failover, in percent of SPEECH_TIMEOUT_MS. */
  readonly silencePercent: number;
}

const DEFAULT_SILENCE_PERCENT = 30;

export class CatalogError extends Error {}

interface CatalogFile {
  markupPercent: number;
  defaultModel: string;
  silencePercent?: number;
  upstreams?: UpstreamServer[];
  models: FileCatalogModel[];
}

interface FileCatalogModel extends FileModel {
  provider: string;
  name: string;
  description: string;
  maxInputCharacters: number;
  defaultVoice: string;
  available: boolean;
  speed?: { min?: number; max?: number };
  charactersPerSecond?: CharactersPerSecond;
}

const text = { type: 'string', minLength: 1, maxLength: 1000 };
const name = { type: 'string', minLength: 1, maxLength: 100 };
const slug = { type: 'string', pattern: '^[a-z0-9-]+$', maxLength: 60 };

const modelSchema = objectOf(
  {
    id: name,
    provider: { type: 'string', pattern: '^[a-z0-9]+(-[a-z0-9]+)*$', maxLength: 39 },
    name,
    description: text,
    upstreamModel: name,
    baseRatePicoUsdPerCharacter: { type: 'integer', minimum: 1, maximum: 1_000_000_000_000 },
    maxInputCharacters: { type: 'integer', minimum: 1, maximum: 500_000 },
    defaultVoice: slug,
    available: { type: 'boolean' },
    voices: { type: 'array', minItems: 1, items: objectOf({ voice: slug, name, upstreamVoice: name }) },
  },
  {
    speed: objectOf(
      {},
      {
        min: { type: 'number', minimum: SPEED.min, maximum: SPEED.default },
        max: { type: 'number', minimum: SPEED.default, maximum: SPEED.max },
      },
    ),
    charactersPerSecond: objectOf({
      min: { type: 'number', minimum: 0, maximum: 5 },
      max: { type: 'number', minimum: 20, maximum: 1_000 },
    }),
    upstreams: modelUpstreamsSchema,
  },
);

const validate = compileSchema<CatalogFile>(
  objectOf(
    {
      markupPercent: { type: 'integer', minimum: 100, maximum: 10_000 },
      defaultModel: name,
      models: { type: 'array', minItems: 1, items: modelSchema },
    },
    { silencePercent: { type: 'integer', minimum: 1, maximum: 90 }, upstreams: upstreamServersSchema },
  ),
  { allErrors: true },
);

const BUILT_IN = new URL('catalog-default.json', import.meta.url);

/**
 * Models, voices and prices come from this file alone (R42). Each model has one rate, so that a price is known before it
 * is paid. A voice id is `<provider>_<slug>`; a bare slug selects nothing.
 * @throws CatalogError that names the file and its faults
 */
export function loadCatalog(file?: string): Catalog {
  const where = file ?? 'the built-in catalog';
  let data: unknown;
  try {
    data = parseWithoutNulls(readFileSync(file ?? BUILT_IN, 'utf8'));
  } catch (error) {
    throw new CatalogError(`${where} can't be read as JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (validate(data)) {
    const faults = inconsistencies(data);
    if (faults.length === 0) return build(data);
    throw new CatalogError(`${where}: ${faults.join('; ')}`);
  }
  const faults = [...(validate.errors ?? []).map(describe), ...inconsistencies(comparablePart(data))];
  throw new CatalogError(`${where}: ${faults.join('; ')}`);
}

/** What of an invalid file can still be compared, so that its other faults are reported too. */
function comparablePart(data: unknown): CatalogFile {
  const file = isObject(data) ? data : {};
  const models = objects(file.models).map((model, at) => ({
    ...model,
    id: typeof model.id === 'string' ? model.id : `${model.provider}/models.${at}`,
    voices: named(model.voices, 'voice').map((voice) => ({ upstreamVoice: voice.voice, ...voice })),
    upstreams: Array.isArray(model.upstreams) ? named(model.upstreams, 'name') : undefined,
  }));
  return { ...file, models, upstreams: named(file.upstreams, 'name') } as unknown as CatalogFile;
}

type JsonObject = Record<string, unknown>;

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;
const objects = (value: unknown): JsonObject[] => (Array.isArray(value) ? value.filter(isObject) : []);
const named = (value: unknown, member: string): JsonObject[] =>
  objects(value).filter((each) => typeof each[member] === 'string');

const describe = (error: ErrorObject): string =>
  `${error.instancePath.slice(1).replaceAll('/', '.') || 'the file'} ${error.message}` +
  (error.keyword === 'additionalProperties' ? ` (${error.params.additionalProperty})` : '');

function inconsistencies({ markupPercent, defaultModel, models, upstreams = [] }: CatalogFile): string[] {
  const faults = upstreamFaults(upstreams, models);
  if (defaultModel !== undefined && !models.some((model) => model.id === defaultModel))
    faults.push(`defaultModel ${defaultModel} is not the id of a model in the list "models"`);
  const ids = models.map((model) => model.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push(`model ${id} is listed twice`);
  for (const model of models) {
    const [provider, ...rest] = model.id.split('/');
    if (provider !== model.provider || !/^[a-z0-9.-]+$/.test(rest.join('/'))) {
      faults.push(`model ${model.id}: the id must have the form ${model.provider}/<name> (of a-z 0-9 . -)`);
    }
    const { baseRatePicoUsdPerCharacter: rate } = model;
    const hasRates = [rate, markupPercent].every(Number.isSafeInteger);
    if (hasRates && (BigInt(rate) * BigInt(markupPercent)) % 100n !== 0n) {
      faults.push(`model ${model.id}: baseRatePicoUsdPerCharacter × markupPercent / 100 must be a whole number`);
    }
    const slugs = model.voices.map((voice) => voice.voice);
    if (new Set(slugs).size !== slugs.length) faults.push(`model ${model.id} lists a voice twice`);
    if (!slugs.includes(model.defaultVoice)) {
      faults.push(`model ${model.id}: defaultVoice ${model.defaultVoice} is not one of its voices`);
    }
  }
  return faults;
}

function build({ models: files, markupPercent, ...file }: CatalogFile): Catalog {
  const models = files.map((model): Model => {
    const { provider, voices: listed, defaultVoice, baseRatePicoUsdPerCharacter, upstreams: _, ...rest } = model;
    const voices = listed.map(({ voice: slug, name, upstreamVoice }) => ({
      id: `${provider}_${slug}`,
      slug,
      name,
      upstreamVoice,
    }));
    const upstreams = upstreamsOf(model);
    return {
      ...rest,
      provider,
      ratePicoUsd: (BigInt(baseRatePicoUsdPerCharacter) * BigInt(markupPercent)) / 100n,
      defaultVoice: voices.find(({ slug }) => slug === defaultVoice) as Voice,
      voices,
      speed: upstreams.some(({ hasSpeed }) => hasSpeed)
        ? { min: SPEED.min, max: SPEED.max, ...model.speed }
        : { min: SPEED.default, max: SPEED.default },
      upstreams,
      maxRequestCharacters: Math.max(...upstreams.map(({ maxRequestCharacters }) => maxRequestCharacters)),
    };
  });
  const defaultModel = models.find(({ id }) => id === file.defaultModel) as Model;
  const { upstreams = [], silencePercent = DEFAULT_SILENCE_PERCENT } = file;
  return { models, defaultModel, upstreams, silencePercent };
}
