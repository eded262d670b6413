import { setImmediate as endOfTurn } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Catalog, Model } from '../config/catalog.ts';
import { type CharactersPerSecond, DEFAULT_UPSTREAM, type ModelUpstream } from '../config/catalog-upstreams.ts';
import { SPEED } from '../config/speech-limits.ts';
import type { ProviderSettings, ServerSettings } from '../config/speech-settings.ts';
import type { Metrics } from '../observability/metrics.ts';
import { credentialAlarm } from '../observability/outside.ts';
import { speakInSegments } from './joined-mpeg.ts';
import { asBuffer } from './mpeg-audio.ts';
import { openAiCompatible } from './openai-compatible.ts';
import { costMicroUsd } from './price.ts';
import {
  type AudioType,
  MAX_AUDIO_BYTES,
  type Speech,
  SpeechError,
  type SpeechProvider,
  type Utterance,
} from './provider.ts';
import type { Share } from './synthesis-permits.ts';
import { Upstream } from './upstream.ts';
import { wholeAudio } from './whole-audio.ts';

export const serversOf = ({ baseUrl, apiKey, servers }: ProviderSettings): readonly ServerSettings[] =>
  baseUrl === undefined
    ? servers
    : [{ name: DEFAULT_UPSTREAM, baseUrl, apiKey, keyVariable: 'SPEECH_API_KEY' }, ...servers];

interface Route extends Omit<ModelUpstream, 'name' | 'costPicoUsd'> {
  readonly upstream: Upstream;
  readonly costPicoUsd: bigint | null;
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
  /** None for a job whose model is no longer in the catalog. */
  const routesOf = ({ modelId, speed }: Utterance): readonly Route[] =>
    brokenLast((byId.get(modelId ?? '') ?? []).filter(({ hasSpeed }) => hasSpeed || speed === SPEED.default));

  async function speakBy(
    routes: readonly Route[],
    utterance: Utterance,
    signal: AbortSignal,
    former?: SpeechError,
  ): Promise<Speech> {
    let failure = former;
    const { text, isStreamed = false } = utterance;
    for (const [turn, route] of routes.entries()) {
      const { upstream, model, voices, costPicoUsd, maxRequestCharacters: limit, pace } = route;
      const rest = routes.slice(turn + 1);
      const voice = voices.get(utterance.voice) ?? utterance.voice;
      try {
        const isLong = text.length > limit;
        const isCaptioned = utterance.isCaptioned === true && route.captions === 'kokoro' && !isLong;
        // No other upstream goes on for one that is heard.
        const speak = (text: string, signal: AbortSignal, isFirst: boolean) => {
          const firstByteMs = rest.length > 0 && (isFirst || !isStreamed) ? silenceMs : undefined;
          return upstream.synthesize({ ...utterance, text, model, voice, isCaptioned }, signal, firstByteMs, pace);
        };
        const isForListener = isStreamed && !route.streams;
        const spoken = await (isForListener || isLong
          ? speakInSegments(text, { limit, isForListener, speak }, signal)
          : speak(text, signal, true));
        metrics.upstreamSpent(upstream.name, costMicroUsd(text.length, costPicoUsd ?? 0n));
        const failover = async (error: SpeechError) => {
          if (signal.aborted) throw error;
          return speakBy(rest, utterance, signal, error);
        };
        const speech = { ...spoken, upstream: { name: upstream.name, costPicoUsd } };
        return rest.length > 0 ? { ...speech, failover } : speech;
      } catch (error) {
        if (!(error instanceof SpeechError)) throw error;
        failure = failure?.transient ? failure : error;
        if (signal.aborted) throw failure;
        const { traceId } = utterance;
        if (rest.length > 0)
          log.warn(
            { traceId, upstream: upstream.name, err: error },
            'a speech server (upstream) failed, so the service tries the next one. Nothing is charged for the failure; check this server if it repeats',
          );
      }
    }
    throw failure ?? new SpeechError('TTS_UNAVAILABLE', 'No speech server offers this model or speed any more.', false);
  }

  return {
    provider: { synthesize: (utterance, signal) => speakBy(routesOf(utterance), utterance, signal) },
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

const NAMES: Readonly<Record<AudioType, string>> = { 'audio/mpeg': 'MPEG', 'audio/wav': 'WAV' };

export interface CollectedSpeech extends Pick<Speech, 'mimeType' | 'upstream' | 'words'> {
  readonly audio: Buffer;
}

/**
 * Returns the whole audio, with failover; of the one type that is accepted, if only one is (R56).
 * @param share counts the audio as it arrives
 * @throws SpeechError
 */
export function collectSpeech(
  provider: SpeechProvider,
  utterance: Utterance,
  signal: AbortSignal,
  only?: AudioType,
  share?: Share,
): Promise<CollectedSpeech> {
  return synthesizeWithFailover(provider.synthesize(utterance, signal), (speech) => collect(speech, only, share));
}

/** Applies `take` to the speech; if that throws SpeechError, to the next upstream's speech. */
export async function synthesizeWithFailover<Taken>(
  begun: Promise<Speech>,
  take: (speech: Speech) => Promise<Taken>,
): Promise<Taken> {
  let speech = await begun;
  for (;;) {
    try {
      return await take(speech);
    } catch (error) {
      if (!(error instanceof SpeechError) || !speech.failover) throw error;
      speech = await speech.failover(error);
    }
  }
}

const isOther = (wanted: AudioType) =>
  new SpeechError('TTS_UPSTREAM_ERROR', `The speech provider did not answer with ${NAMES[wanted]} audio.`, false);

async function collect(
  speech: Speech,
  only: AudioType | undefined,
  share: Share | undefined,
): Promise<CollectedSpeech> {
  const { mimeType, upstream, words } = speech;
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of speech.audio) {
      if (only && mimeType !== only) throw isOther(only);
      size += chunk.length;
      share?.add(chunk.length);
      if (size > MAX_AUDIO_BYTES) throw new SpeechError('TTS_UPSTREAM_ERROR', 'The audio is too large.', false);
      chunks.push(chunk);
    }
  } catch (error) {
    share?.add(-size);
    throw error;
  }
  const audio = completed(speech, Buffer.concat(chunks, size));
  return { mimeType, audio, ...(upstream && { upstream }), ...(words && { words }) };
}

/** The audio of speech that has ended. */
export const completed = ({ mimeType, description }: Speech, audio: Buffer): Buffer =>
  asBuffer(wholeAudio(mimeType, audio, description?.()));

/** About what a connection takes in one write; more is not waited for. */
const MAX_BYTES = 64 * 1024;

export type Begun =
  | { readonly outcome: 'whole'; readonly audio: Buffer }
  | { readonly outcome: 'flowing'; readonly audio: AsyncIterable<Uint8Array> };

/** Returns the whole audio if it arrives in this turn of the event loop: short audio then needs no stream (R55). */
export async function readIfComplete(audio: AsyncIterable<Uint8Array>): Promise<Begun> {
  const source = audio[Symbol.asyncIterator]();
  const turn = endOfTurn();
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size <= MAX_BYTES) {
    const step = source.next();
    const taken = await Promise.race([step, turn]);
    if (!taken) return { outcome: 'flowing', audio: flow(chunks, source, step) };
    if (taken.done) return { outcome: 'whole', audio: Buffer.concat(chunks, size) };
    chunks.push(taken.value);
    size += taken.value.length;
  }
  return { outcome: 'flowing', audio: flow(chunks, source) };
}

async function* flow(
  taken: readonly Uint8Array[],
  source: AsyncIterator<Uint8Array>,
  next?: Promise<IteratorResult<Uint8Array>>,
): AsyncIterable<Uint8Array> {
  try {
    yield* taken;
    for (let step = await (next ?? source.next()); !step.done; step = await source.next()) yield step.value;
  } finally {
    await source.return?.();
  }
}
