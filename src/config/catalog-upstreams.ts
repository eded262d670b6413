/** Of one request to an upstream whose entry names no other. */
const DEFAULT_MAX_REQUEST_CHARACTERS = 4096;

/** The upstream of SPEECH_BASE_URL. */
export const DEFAULT_UPSTREAM = 'default';

export interface UpstreamServer {
  readonly name: string;
  readonly baseUrl: string;
  /** Environment variable that holds the API key; undefined if the server needs none. */
  readonly keyVariable?: string;
}

/** How many letters and digits are spoken in a second at speed 1. */
export interface CharactersPerSecond {
  readonly min: number;
  readonly max: number;
}

export interface ModelUpstream {
  readonly name: string;
  readonly model: string;
  /** The upstream's own voice names by `upstreamVoice`; a voice without an entry keeps its name. */
  readonly voices: ReadonlyMap<string, string>;
  readonly costPicoUsd: bigint;
  /** Longer texts are spoken in segments. */
  readonly maxRequestCharacters: number;
  /** False: it is asked for speed 1 only. */
  readonly hasSpeed: boolean;
  /** Otherwise it answers only once all is spoken. */
  readonly streams: boolean;
  /** How it tells when each word is spoken. */
  readonly captions: 'kokoro' | undefined;
}

export interface FileModel {
  readonly id: string;
  readonly upstreamModel: string;
  readonly baseRatePicoUsdPerCharacter: number;
  readonly voices: readonly { readonly voice: string; readonly name: string; readonly upstreamVoice: string }[];
  readonly upstreams?: readonly {
    readonly name: string;
    readonly model?: string;
    readonly voices?: Readonly<Record<string, string>>;
    readonly costPicoUsdPerCharacter?: number;
    readonly maxRequestCharacters?: number;
    readonly speed?: boolean;
    readonly streams?: boolean;
    readonly captions?: 'kokoro';
  }[];
}

const text = { type: 'string', minLength: 1, maxLength: 100 };
const name = { type: 'string', pattern: '^[a-z0-9]+(-[a-z0-9]+)*$', maxLength: 39 };

export const objectOf = (required: Record<string, object>, optional: Record<string, object> = {}) => ({
  type: 'object',
  required: Object.keys(required),
  additionalProperties: false,
  properties: { ...required, ...optional },
});

export const upstreamServersSchema = {
  type: 'array',
  items: objectOf(
    { name, baseUrl: { type: 'string', minLength: 1, maxLength: 1000 } },
    { keyVariable: { type: 'string', pattern: '^[A-Z][A-Z0-9_]*$', maxLength: 100 } },
  ),
};

export const modelUpstreamsSchema = {
  type: 'array',
  minItems: 1,
  items: objectOf(
    { name },
    {
      model: text,
      voices: { type: 'object', additionalProperties: text },
      costPicoUsdPerCharacter: { type: 'integer', minimum: 0, maximum: 1_000_000_000_000 },
      maxRequestCharacters: { type: 'integer', minimum: 100, maximum: 500_000 },
      speed: { type: 'boolean' },
      streams: { type: 'boolean' },
      captions: { enum: ['kokoro'] },
    },
  ),
};

export function upstreamFaults(servers: readonly UpstreamServer[], models: readonly FileModel[]): string[] {
  const names = servers.map((server) => server.name);
  const known = [DEFAULT_UPSTREAM, ...names];
  return [
    ...repeated(names).map((each) => `upstream ${each} is listed twice`),
    ...servers
      .filter(({ baseUrl }) => !isBase(baseUrl))
      .map((server) => `upstream ${server.name}: baseUrl must be an http or https URL that ends in /v1`),
    ...(names.includes(DEFAULT_UPSTREAM)
      ? [`upstream ${DEFAULT_UPSTREAM} needs another name, because this name means the server in SPEECH_BASE_URL`]
      : []),
    ...models.flatMap((model) => modelFaults(model, known).map((fault) => `model ${model.id}: ${fault}`)),
  ];
}

const isBase = (url: string): boolean =>
  URL.canParse(url) && /^https?:$/.test(new URL(url).protocol) && /\/v1\/?$/.test(new URL(url).href);

function modelFaults({ voices, upstreams = [] }: FileModel, known: readonly string[]): string[] {
  const names = upstreams.map((upstream) => upstream.name);
  const slugs = new Set(voices.map(({ voice }) => voice));
  return [
    ...repeated(names).map((each) => `upstream ${each} is listed twice`),
    ...names
      .filter((each) => !known.includes(each))
      .map((each) => `upstream ${each} is missing in the list "upstreams" of the catalog`),
    ...upstreams.flatMap(({ name: upstream, voices: own = {} }) => [
      ...Object.keys(own)
        .filter((slug) => !slugs.has(slug))
        .map((slug) => `upstream ${upstream} names the voice ${slug}, which this model does not have`),
      ...ambiguous(voices, own).map(
        (voice) =>
          `upstreamVoice ${voice} maps to several voices of upstream ${upstream}; give each voice its own upstreamVoice`,
      ),
    ]),
  ];
}

/** Jobs store only the `upstreamVoice`, so it must identify one voice of each upstream. */
function ambiguous(voices: FileModel['voices'], own: Readonly<Record<string, string>>): string[] {
  const ownNames = new Map<string, Set<string>>();
  for (const { voice, upstreamVoice } of voices) {
    ownNames.set(upstreamVoice, (ownNames.get(upstreamVoice) ?? new Set()).add(own[voice] ?? upstreamVoice));
  }
  return [...ownNames].filter(([, names]) => names.size > 1).map(([upstreamVoice]) => upstreamVoice);
}

const repeated = (names: readonly string[]): string[] => [
  ...new Set(names.filter((each, at) => names.indexOf(each) !== at)),
];

/** The upstreams of a model in failover order; by default only that of SPEECH_BASE_URL. */
export function upstreamsOf(model: FileModel): ModelUpstream[] {
  const { voices, upstreams = [{ name: DEFAULT_UPSTREAM }] } = model;
  return upstreams.map((upstream) => ({
    name: upstream.name,
    model: upstream.model ?? model.upstreamModel,
    voices: new Map(
      voices.flatMap(({ voice, upstreamVoice }) => {
        const own = upstream.voices?.[voice];
        return own === undefined ? [] : [[upstreamVoice, own] as const];
      }),
    ),
    costPicoUsd: BigInt(upstream.costPicoUsdPerCharacter ?? model.baseRatePicoUsdPerCharacter),
    maxRequestCharacters: upstream.maxRequestCharacters ?? DEFAULT_MAX_REQUEST_CHARACTERS,
    hasSpeed: upstream.speed ?? true,
    streams: upstream.streams ?? true,
    captions: upstream.captions,
  }));
}
