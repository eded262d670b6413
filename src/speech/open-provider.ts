import type { Logger } from 'pino';
import { credentialAlarm } from '../observability/credential-alarm.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Catalog, Model } from './catalog.ts';
import { DEFAULT_UPSTREAM, EMBEDDED_UPSTREAM, type ModelUpstream } from './catalog-upstreams.ts';
import { failover, type Route } from './failover.ts';
import type { SpeechProvider, Utterance } from './provider.ts';
import { Upstream } from './upstream.ts';

export interface ProviderSettings {
  /** `embedded:` or the base of an OpenAI-compatible API; undefined where the catalog's upstreams speak all models. */
  readonly baseUrl: string | undefined;
  readonly apiKey: string | undefined;
  /** Longest synthesis that is collected before it is paid. */
  readonly timeoutMs: number;
  /** Those of the catalog, with their keys. */
  readonly servers: readonly ServerSettings[];
}

export interface ServerSettings {
  readonly name: string;
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** The setting that holds the key. */
  readonly keyVariable?: string | undefined;
}

const EMBEDDED = 'embedded:';
/** The part of a synthesis' time that a text may wait for its turn at the embedded voice. */
const WAITING_SHARE = 1 / 3;

/** The provider that the settings and the catalog name: the upstreams of each model, one for the other. */
export async function openProvider(
  settings: ProviderSettings,
  catalog: Catalog,
  parts: { readonly metrics: Metrics; readonly log: Logger },
): Promise<SpeechProvider> {
  const { baseUrl, apiKey, timeoutMs, servers } = settings;
  const silenceMs = (timeoutMs * catalog.silencePercent) / 100;
  const isEmbedded = baseUrl === EMBEDDED;
  const upstreams = new Map<string, Upstream>();
  if (baseUrl !== undefined) {
    const provider = await openServer(baseUrl, apiKey, timeoutMs);
    const name = isEmbedded ? EMBEDDED_UPSTREAM : DEFAULT_UPSTREAM;
    const onRefused = credentialAlarm(parts, 'SPEECH_API_KEY');
    upstreams.set(DEFAULT_UPSTREAM, new Upstream({ name, provider, silenceMs, onRefused, ...parts }));
  }
  for (const server of servers) {
    const provider = await openServer(server.baseUrl, server.apiKey, timeoutMs);
    // Without a key of its own, the catalog has to name one.
    const onRefused = credentialAlarm(parts, server.keyVariable ?? 'CATALOG_FILE');
    upstreams.set(server.name, new Upstream({ name: server.name, provider, silenceMs, onRefused, ...parts }));
  }
  const routesOf = (model: Model): readonly Route[] =>
    model.upstreams.flatMap((named) => {
      const upstream = upstreams.get(named.name);
      return upstream ? [{ ...named, upstream, costPicoUsd: isEmbedded ? ownCost(named) : named.costPicoUsd }] : [];
    });
  const byId = new Map(catalog.models.map((model) => [model.id, routesOf(model)]));
  const byName = new Map([...catalog.models].reverse().map((model) => [model.upstreamModel, routesOf(model)]));
  const fallback = upstreams.get(DEFAULT_UPSTREAM);
  return failover({
    routesOf: ({ modelId, model }) =>
      byId.get(modelId ?? '') ?? byName.get(model) ?? (fallback ? [asItIs(fallback, model)] : []),
    ...{ upstreams: [...upstreams.values()], silenceMs, ...parts },
  });
}

/** What the embedded voice speaks costs nothing. */
const ownCost = ({ name, costPicoUsd }: ModelUpstream): bigint => (name === DEFAULT_UPSTREAM ? 0n : costPicoUsd);

/** For a job whose model the catalog has no longer. */
const asItIs = (upstream: Upstream, model: Utterance['model']): Route => ({
  ...{ upstream, model, voices: new Map(), costPicoUsd: null },
});

/** One upstream by itself. The embedded voice is loaded only where it is asked for. */
export async function openServer(
  baseUrl: string,
  apiKey: string | undefined,
  timeoutMs: number,
): Promise<SpeechProvider> {
  if (baseUrl === EMBEDDED) {
    const { embeddedVoice } = await import('./embedded/index.ts');
    return embeddedVoice({ maxWaitMs: timeoutMs * WAITING_SHARE });
  }
  const { openAiCompatible } = await import('./openai-compatible.ts');
  return openAiCompatible({ baseUrl, firstByteTimeoutMs: timeoutMs, ...(apiKey !== undefined && { apiKey }) });
}
