import type { Logger } from 'pino';
import type { Catalog, Model } from '../config/catalog.ts';
import {
  type CharactersPerSecond,
  DEFAULT_MAX_REQUEST_CHARACTERS,
  DEFAULT_UPSTREAM,
} from '../config/catalog-upstreams.ts';
import { SPEED } from '../config/speech-limits.ts';
import type { ProviderSettings, ServerSettings } from '../config/speech-settings.ts';
import type { Metrics } from '../observability/metrics.ts';
import { credentialAlarm } from '../observability/outside.ts';
import { speakInSegments } from './joined-mpeg.ts';
import { openAiCompatible } from './openai-compatible.ts';
import { costMicroUsd } from './price.ts';
import { type Speech, SpeechError, type SpeechProvider, type Utterance } from './provider.ts';
import { Upstream } from './upstream.ts';

export const serversOf = ({ baseUrl, apiKey, servers }: ProviderSettings): readonly ServerSettings[] =>
  baseUrl === undefined
    ? servers
    : [{ name: DEFAULT_UPSTREAM, baseUrl, apiKey, keyVariable: 'SPEECH_API_KEY' }, ...servers];

interface Route {
  readonly upstream: Upstream;
  readonly model: string;
  /** The upstream's own voice names by the catalog's `upstreamVoice`; a voice without an entry keeps its name. */
  readonly voices: ReadonlyMap<string, string>;
  readonly costPicoUsd: bigint | null;
  readonly maxRequestCharacters: number;
  readonly hasSpeed: boolean;
  readonly pace?: CharactersPerSecond | undefined;
}

/**
 * A provider that fails over between upstreams:
 *
 *     an upstream refuses, fails before its first audio, or is silent -> the next one, within the same deadline
 *     it breaks off                                                   -> the next one, if the reader asks (`Speech.failover`)
 *     all have failed                                                 -> the first transient error, otherwise the last error
 *
 * Upstreams with an open circuit breaker come last, but are still tried if the others fail.
 */
export function openProvider(
  settings: ProviderSettings,
  catalog: Catalog,
  parts: { readonly metrics: Metrics; readonly log: Logger },
): { readonly provider: SpeechProvider; close(): Promise<void> } {
  const { metrics, log } = parts;
  const { timeoutMs } = settings;
  const calls = metrics.outside('upstream');
  const silenceMs = (timeoutMs * catalog.silencePercent) / 100;
  const upstreams = serversOf(settings).map(({ name, keyVariable = 'CATALOG_FILE', ...server }) => {
    const onRefused = credentialAlarm(parts, keyVariable);
    const opened = openAiCompatible({ ...server, firstByteTimeoutMs: timeoutMs });
    return new Upstream({ name, server: opened, silenceMs, onRefused, calls, ...parts });
  });
  const byName = new Map(upstreams.map((upstream) => [upstream.name, upstream]));
  const routesOfModel = (model: Model): readonly Route[] =>
    model.upstreams.flatMap((named) => {
      const upstream = byName.get(named.name);
      return upstream ? [{ ...named, upstream, pace: model.charactersPerSecond }] : [];
    });
  const byId = new Map(catalog.models.map((model) => [model.id, routesOfModel(model)]));
  const byUpstreamModel = new Map(
    [...catalog.models].reverse().map((model) => [model.upstreamModel, routesOfModel(model)]),
  );
  const fallback = byName.get(DEFAULT_UPSTREAM);

  function routesOf({ modelId, model, speed }: Utterance): readonly Route[] {
    const routes = byId.get(modelId ?? '') ?? byUpstreamModel.get(model);
    if (routes) return brokenLast(routes.filter(({ hasSpeed }) => hasSpeed || speed === SPEED.default));
    // For a job whose model is no longer in the catalog.
    const maxRequestCharacters = DEFAULT_MAX_REQUEST_CHARACTERS;
    return fallback
      ? [{ upstream: fallback, model, voices: new Map(), costPicoUsd: null, maxRequestCharacters, hasSpeed: true }]
      : [];
  }

  async function speak(
    utterance: Utterance,
    routes: readonly Route[],
    signal: AbortSignal,
    former?: SpeechError,
  ): Promise<Speech> {
    let failure = former;
    for (const [turn, { upstream, model, voices, costPicoUsd, maxRequestCharacters, pace }] of routes.entries()) {
      const rest = routes.slice(turn + 1);
      const voice = voices.get(utterance.voice) ?? utterance.voice;
      try {
        const firstByteMs = rest.length > 0 ? silenceMs : undefined;
        const request = (text: string, signal: AbortSignal) =>
          upstream.synthesize({ ...utterance, text, model, voice }, signal, firstByteMs, pace);
        const { text } = utterance;
        const isLong = text.length > maxRequestCharacters;
        const spoken = await (isLong
          ? speakInSegments(text, maxRequestCharacters, request, signal)
          : request(text, signal));
        metrics.upstreamSpent(upstream.name, costMicroUsd(utterance.text.length, costPicoUsd ?? 0n));
        const failover = async (error: SpeechError) => {
          if (signal.aborted) throw error;
          return speak(utterance, rest, signal, error);
        };
        const speech = { ...spoken, upstream: { name: upstream.name, costPicoUsd } };
        return rest.length > 0 ? { ...speech, failover } : speech;
      } catch (error) {
        if (!(error instanceof SpeechError)) throw error;
        failure = failure?.transient ? failure : error;
        if (signal.aborted) throw failure;
        const { traceId } = utterance;
        if (rest.length > 0) log.warn({ traceId, upstream: upstream.name, err: error }, 'trying the next upstream');
      }
    }
    throw failure ?? new SpeechError('TTS_UNAVAILABLE', 'No upstream serves this model any more.', false);
  }

  return {
    provider: { synthesize: (utterance, signal) => speak(utterance, routesOf(utterance), signal) },
    async close() {
      await Promise.all(upstreams.map((upstream) => upstream.close()));
    },
  };
}

function brokenLast(routes: readonly Route[]): readonly Route[] {
  if (routes.length < 2) return routes;
  const available = routes.map(({ upstream }) => upstream.isAvailable);
  return [...routes.filter((_, index) => available[index]), ...routes.filter((_, index) => !available[index])];
}
