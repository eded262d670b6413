import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.ts';
import { costMicroUsd } from './price.ts';
import { type Place, type Speech, SpeechError, type SpeechProvider, type Utterance } from './provider.ts';
import type { Upstream } from './upstream.ts';

/** How one upstream speaks a model of the catalog. */
export interface Route {
  readonly upstream: Upstream;
  /** Its own name of the model. */
  readonly model: string;
  /** Its own names of voices, by the catalog's `upstreamVoice`; of a voice that is not there, the same name. */
  readonly voices: ReadonlyMap<string, string>;
  /** What a character costs the operator, in 10^-12 USD; null where the catalog does not tell. */
  readonly costPicoUsd: bigint | null;
}

export interface FailoverOptions {
  /** Those that can speak the utterance, in the operator's order; none when nobody does any more. */
  readonly routesOf: (utterance: Utterance) => readonly Route[];
  readonly upstreams: readonly Upstream[];
  /** Longest wait for the first audio of an upstream that another one stands behind. */
  readonly silenceMs: number;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/**
 * A provider that has the first upstream speak which can:
 *
 *     an upstream fails before its first audio, or is silent -> the next one, within the same deadline
 *     it refuses the utterance, as the others would          -> its error
 *     it breaks off                                          -> the next one, if the listener asks (`Speech.instead`)
 *     all have failed                                        -> the first error that may pass, else the last one
 *
 * Upstreams that are broken come last, and are asked all the same where the others fail.
 */
export function failover({ routesOf, upstreams, silenceMs, metrics, log }: FailoverOptions): SpeechProvider {
  const spokenBy = (route: Route, { text }: Utterance, speech: Speech, instead?: Speech['instead']): Speech => {
    const { upstream, costPicoUsd } = route;
    metrics.upstreamSpent(upstream.name, costMicroUsd(text.length, costPicoUsd ?? 0n));
    return named(route, speech, instead);
  };

  async function speak(
    utterance: Utterance,
    routes: readonly Route[],
    signal: AbortSignal,
    former?: SpeechError,
  ): Promise<Speech> {
    let failure = former;
    for (const [turn, route] of routes.entries()) {
      const rest = routes.slice(turn + 1);
      try {
        const firstByteMs = rest.length > 0 ? silenceMs : undefined;
        const speech = await route.upstream.provider.synthesize(inWordsOf(route, utterance), signal, firstByteMs);
        const instead = async (error: SpeechError) => {
          if (signal.aborted) throw error;
          return speak(utterance, rest, signal, error);
        };
        return spokenBy(route, utterance, speech, rest.length > 0 ? instead : undefined);
      } catch (error) {
        if (!(error instanceof SpeechError)) throw error;
        failure = failure?.transient ? failure : error;
        if (signal.aborted || error.fault === 'utterance') throw failure;
        if (rest.length > 0) log.warn({ upstream: route.upstream.name, err: error }, 'the next upstream is asked');
      }
    }
    throw failure ?? nobodySpeaks();
  }

  const synthesize = (utterance: Utterance, signal: AbortSignal) =>
    speak(utterance, inOrder(routesOf(utterance)), signal);

  return {
    synthesize,
    refuse(utterance) {
      const refusals = routesOf(utterance).map((route) =>
        route.upstream.provider.refuse?.(inWordsOf(route, utterance)),
      );
      return refusals.every(Boolean) ? refusals[0] : undefined;
    },
    reserve(utterance): Place | SpeechError {
      const routes = routesOf(utterance);
      const [route] = routes;
      const place = routes.length === 1 ? route?.upstream.provider.reserve?.(inWordsOf(route, utterance)) : undefined;
      if (place instanceof SpeechError) return place;
      if (!place || !route) return { synthesize, release: () => {} };
      return {
        synthesize: async (given, signal) => spokenBy(route, given, await place.synthesize(given, signal)),
        release: () => place.release(),
      };
    },
    async close() {
      await Promise.all(upstreams.map((upstream) => upstream.close()));
    },
  };
}

/** Those that are broken last. */
function inOrder(routes: readonly Route[]): readonly Route[] {
  if (routes.length < 2) return routes;
  const available = routes.map(({ upstream }) => upstream.isAvailable);
  return [...routes.filter((_, index) => available[index]), ...routes.filter((_, index) => !available[index])];
}

const inWordsOf = ({ model, voices }: Route, utterance: Utterance): Utterance => ({
  ...utterance,
  model,
  voice: voices.get(utterance.voice) ?? utterance.voice,
});

const named = (
  { upstream: { name }, costPicoUsd }: Route,
  { mimeType, audio }: Speech,
  instead?: Speech['instead'],
): Speech => ({ mimeType, audio, upstream: { name, costPicoUsd }, ...(instead && { instead }) });

const nobodySpeaks = () => new SpeechError('TTS_UNAVAILABLE', 'No speech provider speaks this model any more.', false);
