/** The upstream that the settings name, with SPEECH_BASE_URL. */
export const DEFAULT_UPSTREAM = 'default';
/** As the books and metrics name the default upstream where it is the embedded voice. */
export const EMBEDDED_UPSTREAM = 'embedded';

/** A server that speaks, with the API of OpenAI. */
export interface UpstreamServer {
  readonly name: string;
  /** As SPEECH_BASE_URL. */
  readonly baseUrl: string;
  /** Name of the environment variable that holds its key; undefined where it takes none. */
  readonly keyVariable?: string;
}

/** One of the servers that speak a model. */
export interface ModelUpstream {
  readonly name: string;
  /** Its own name of the model. */
  readonly model: string;
  /** Its own names of voices, by `upstreamVoice`; a voice that is not there has the same name. */
  readonly voices: ReadonlyMap<string, string>;
  /** What a character costs the operator there, in 10^-12 USD. */
  readonly costPicoUsd: bigint;
}

/** As the file has it. */
interface FileModel {
  readonly id: string;
  readonly upstreamModel: string;
  readonly baseRatePicoUsdPerCharacter: number;
  readonly voices: readonly { readonly voice: string; readonly upstreamVoice: string }[];
  readonly upstreams?: readonly FileUpstream[];
}

interface FileUpstream {
  readonly name: string;
  readonly model?: string;
  /** By the voice's slug. */
  readonly voices?: Readonly<Record<string, string>>;
  readonly costPicoUsdPerCharacter?: number;
}

const text = { type: 'string', minLength: 1, maxLength: 100 };
const name = { type: 'string', pattern: '^[a-z0-9]+(-[a-z0-9]+)*$', maxLength: 39 };

export const upstreamServersSchema = {
  type: 'array',
  items: {
    type: 'object',
    required: ['name', 'baseUrl'],
    additionalProperties: false,
    properties: {
      name,
      baseUrl: { type: 'string', minLength: 1, maxLength: 1000 },
      keyVariable: { type: 'string', pattern: '^[A-Z][A-Z0-9_]*$', maxLength: 100 },
    },
  },
};

export const modelUpstreamsSchema = {
  type: 'array',
  minItems: 1,
  items: {
    type: 'object',
    required: ['name'],
    additionalProperties: false,
    properties: {
      name,
      model: text,
      voices: { type: 'object', additionalProperties: text },
      costPicoUsdPerCharacter: { type: 'integer', minimum: 0, maximum: 1_000_000_000_000 },
    },
  },
};

/** What is wrong with the upstreams of a catalog, as far as the schema can't say it. */
export function upstreamFaults(servers: readonly UpstreamServer[], models: readonly FileModel[]): string[] {
  const names = servers.map((server) => server.name);
  const known = [DEFAULT_UPSTREAM, ...names];
  return [
    ...repeated(names).map((each) => `upstream ${each} is listed twice`),
    ...servers
      .filter(({ baseUrl }) => !isBase(baseUrl))
      .map((server) => `upstream ${server.name}: baseUrl is no http or https URL that ends in /v1`),
    ...names
      .filter((each) => each === DEFAULT_UPSTREAM || each === EMBEDDED_UPSTREAM)
      .map((each) => `upstream ${each} can't be defined: the name means that of SPEECH_BASE_URL`),
    ...names
      .filter((each) => !models.some(({ upstreams }) => upstreams?.some((upstream) => upstream.name === each)))
      .map((each) => `upstream ${each} speaks no model`),
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
    ...names.filter((each) => !known.includes(each)).map((each) => `upstream ${each} is not in upstreams`),
    ...upstreams.flatMap(({ name: upstream, voices: own = {} }) => [
      ...Object.keys(own)
        .filter((slug) => !slugs.has(slug))
        .map((slug) => `upstream ${upstream} names the voice ${slug}, which is not in its voices`),
      ...ambiguous(voices, own).map(
        (voice) =>
          `upstream ${upstream} has several names for the upstreamVoice ${voice}; give its voices different ones`,
      ),
    ]),
  ];
}

/** Jobs keep the `upstreamVoice`, so that it has to tell the voice. */
function ambiguous(voices: FileModel['voices'], own: Readonly<Record<string, string>>): string[] {
  const told = new Map<string, Set<string>>();
  for (const { voice, upstreamVoice } of voices) {
    told.set(upstreamVoice, (told.get(upstreamVoice) ?? new Set()).add(own[voice] ?? upstreamVoice));
  }
  return [...told].filter(([, names]) => names.size > 1).map(([upstreamVoice]) => upstreamVoice);
}

const repeated = (names: readonly string[]): string[] => [
  ...new Set(names.filter((each, at) => names.indexOf(each) !== at)),
];

/** The servers that speak a model, in order: that of SPEECH_BASE_URL where the catalog names none. */
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
  }));
}
