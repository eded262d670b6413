import { readFileSync } from 'node:fs';
import { Ajv, type ErrorObject } from 'ajv';
import {
  type ModelUpstream,
  modelUpstreamsSchema,
  type UpstreamServer,
  upstreamFaults,
  upstreamServersSchema,
  upstreamsOf,
} from './catalog-upstreams.ts';
import { SPEED } from './limits.ts';

export interface Voice {
  /** `<provider>_<slug>` */
  readonly id: string;
  readonly slug: string;
  readonly name: string;
  readonly upstreamVoice: string;
}

export interface Model {
  /** Provider-qualified, `<provider>/<name>`. */
  readonly id: string;
  readonly provider: string;
  readonly name: string;
  readonly description: string;
  readonly upstreamModel: string;
  /** What a character costs the caller, markup included, in 10^-12 USD (R3). */
  readonly ratePicoUsd: bigint;
  readonly maxInputCharacters: number;
  readonly defaultVoice: Voice;
  readonly voices: readonly Voice[];
  readonly available: boolean;
  readonly speed: { readonly min: number; readonly max: number };
  /** Who speaks it, in the order in which they are asked. */
  readonly upstreams: readonly ModelUpstream[];
}

export interface Catalog {
  readonly defaultModel: Model;
  readonly models: readonly Model[];
  /** The servers that models name beside the default one. */
  readonly upstreams: readonly UpstreamServer[];
  /** How long an upstream that another one stands behind may be silent, in percent of SPEECH_TIMEOUT_MS. */
  readonly silencePercent: number;
}

const DEFAULT_SILENCE_PERCENT = 30;

/** The catalog can't be used; the message names every fault in it. */
export class CatalogError extends Error {}

interface CatalogFile {
  markupPercent: number;
  defaultModel: string;
  silencePercent?: number;
  upstreams?: UpstreamServer[];
  models: {
    id: string;
    provider: string;
    name: string;
    description: string;
    upstreamModel: string;
    baseRatePicoUsdPerCharacter: number;
    maxInputCharacters: number;
    defaultVoice: string;
    available: boolean;
    speed?: { min?: number; max?: number };
    voices: { voice: string; name: string; upstreamVoice: string }[];
    upstreams?: {
      name: string;
      model?: string;
      voices?: Record<string, string>;
      costPicoUsdPerCharacter?: number;
    }[];
  }[];
}

const text = { type: 'string', minLength: 1, maxLength: 1000 };
const name = { type: 'string', minLength: 1, maxLength: 100 };
const slug = { type: 'string', pattern: '^[a-z0-9-]+$', maxLength: 60 };

const validate = new Ajv({ allErrors: true }).compile<CatalogFile>({
  type: 'object',
  required: ['markupPercent', 'defaultModel', 'models'],
  additionalProperties: false,
  properties: {
    markupPercent: { type: 'integer', minimum: 100, maximum: 10_000 },
    defaultModel: name,
    silencePercent: { type: 'integer', minimum: 1, maximum: 90 },
    upstreams: upstreamServersSchema,
    models: {
      type: 'array',
      minItems: 1,
      items: {
        type: 'object',
        required: [
          ...['id', 'provider', 'name', 'description', 'upstreamModel', 'baseRatePicoUsdPerCharacter'],
          ...['maxInputCharacters', 'defaultVoice', 'available', 'voices'],
        ],
        additionalProperties: false,
        properties: {
          id: name,
          provider: { type: 'string', pattern: '^[a-z0-9]+(-[a-z0-9]+)*$', maxLength: 39 },
          name,
          description: text,
          upstreamModel: name,
          baseRatePicoUsdPerCharacter: { type: 'integer', minimum: 1, maximum: 1_000_000_000_000 },
          maxInputCharacters: { type: 'integer', minimum: 1, maximum: 60_000 },
          defaultVoice: slug,
          available: { type: 'boolean' },
          speed: {
            type: 'object',
            additionalProperties: false,
            properties: {
              min: { type: 'number', minimum: SPEED.min, maximum: SPEED.default },
              max: { type: 'number', minimum: SPEED.default, maximum: SPEED.max },
            },
          },
          upstreams: modelUpstreamsSchema,
          voices: {
            type: 'array',
            minItems: 1,
            items: {
              type: 'object',
              required: ['voice', 'name', 'upstreamVoice'],
              additionalProperties: false,
              properties: { voice: slug, name, upstreamVoice: name },
            },
          },
        },
      },
    },
  },
});

const BUILT_IN = new URL('catalog-default.json', import.meta.url);

/**
 * Reads the catalog of models, voices and rates, the built-in one when no file is named.
 * @throws CatalogError that names the file and each fault in it
 */
export function loadCatalog(file?: string): Catalog {
  const where = file ?? 'the built-in catalog';
  let data: unknown;
  try {
    data = JSON.parse(readFileSync(file ?? BUILT_IN, 'utf8'));
  } catch (error) {
    throw new CatalogError(`${where} can't be read as JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (!validate(data)) throw new CatalogError(`${where}: ${(validate.errors ?? []).map(describe).join('; ')}`);
  const faults = inconsistencies(data);
  if (faults.length > 0) throw new CatalogError(`${where}: ${faults.join('; ')}`);
  return build(data);
}

const describe = (error: ErrorObject): string =>
  `${error.instancePath.slice(1).replaceAll('/', '.') || 'the file'} ${error.message}` +
  (error.keyword === 'additionalProperties' ? ` (${error.params.additionalProperty})` : '');

/** What the schema can't say: references, uniqueness, and rates that stay whole numbers with the markup. */
function inconsistencies({ markupPercent, defaultModel, models, upstreams = [] }: CatalogFile): string[] {
  const faults = upstreamFaults(upstreams, models);
  if (!models.some((model) => model.id === defaultModel)) faults.push(`defaultModel ${defaultModel} is not in models`);
  const ids = models.map((model) => model.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push(`model ${id} is listed twice`);
  for (const model of models) {
    if (
      !model.id.startsWith(`${model.provider}/`) ||
      !/^[a-z0-9.-]+$/.test(model.id.slice(model.provider.length + 1))
    ) {
      faults.push(`model ${model.id} is not of the form ${model.provider}/<name>`);
    }
    if ((BigInt(model.baseRatePicoUsdPerCharacter) * BigInt(markupPercent)) % 100n !== 0n) {
      faults.push(`model ${model.id}: baseRatePicoUsdPerCharacter with the markup is no whole number`);
    }
    const slugs = model.voices.map((voice) => voice.voice);
    if (new Set(slugs).size !== slugs.length) faults.push(`model ${model.id} lists a voice twice`);
    if (!slugs.includes(model.defaultVoice)) {
      faults.push(`model ${model.id}: defaultVoice ${model.defaultVoice} is not in its voices`);
    }
  }
  return faults;
}

function build(file: CatalogFile): Catalog {
  const models = file.models.map((model): Model => {
    const voices = model.voices.map(
      (voice): Voice => ({
        id: `${model.provider}_${voice.voice}`,
        slug: voice.voice,
        name: voice.name,
        upstreamVoice: voice.upstreamVoice,
      }),
    );
    return {
      id: model.id,
      provider: model.provider,
      name: model.name,
      description: model.description,
      upstreamModel: model.upstreamModel,
      ratePicoUsd: (BigInt(model.baseRatePicoUsdPerCharacter) * BigInt(file.markupPercent)) / 100n,
      maxInputCharacters: model.maxInputCharacters,
      defaultVoice: voices.find((voice) => voice.slug === model.defaultVoice) as Voice,
      voices,
      available: model.available,
      speed: { min: SPEED.min, max: SPEED.max, ...model.speed },
      upstreams: upstreamsOf(model),
    };
  });
  const defaultModel = models.find((model) => model.id === file.defaultModel) as Model;
  const { upstreams = [], silencePercent = DEFAULT_SILENCE_PERCENT } = file;
  return { models, defaultModel, upstreams, silencePercent };
}
