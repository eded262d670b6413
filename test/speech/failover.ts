import type { Test } from 'tap';
import { type Catalog, loadCatalog } from '../../src/config/catalog.ts';
import { createLogger } from '../../src/observability/logger.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { openProvider } from '../../src/speech/open-provider.ts';
import type { SpeechProvider } from '../../src/speech/provider.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { type StubUpstream, startStubUpstream } from '../support/stub-upstream.ts';
import { NEVER } from './compatible-upstream.ts';

const NAMES = ['first', 'second', 'third'] as const;
type Name = (typeof NAMES)[number];

export interface Failover {
  readonly provider: SpeechProvider;
  readonly upstreams: readonly StubUpstream[];
  /** Speaks within the deadline, by default whenever. */
  speak(signal?: AbortSignal): ReturnType<SpeechProvider['synthesize']>;
  /** How many syntheses each upstream was asked for. */
  asked(): number[];
  /** The paths of the requests of one upstream that ask for no speech. */
  probes(index: number): string[];
  /** The value of a metric, by its name and labels as they are printed. */
  metric(sample: string): Promise<number | undefined>;
}

/**
 * A model that so many upstreams speak, one for the other, each with names of its own.
 * @param options with more members of the model, and of its first upstream
 */
export async function startFailover(
  t: Test,
  {
    count = 2,
    timeoutMs = 10_000,
    silencePercent = 10,
    model = {},
    first = {},
  }: { count?: number; timeoutMs?: number; silencePercent?: number; model?: object; first?: object },
): Promise<Failover> {
  const upstreams = await Promise.all(Array.from({ length: count }, () => startStubUpstream()));
  const names = NAMES.slice(0, count);
  const servers = names.map((name, index) => ({ name, baseUrl: (upstreams[index] as StubUpstream).url }));
  const catalog = await catalogOf(t, servers, { silencePercent, model, first });
  const metrics = new Metrics();
  const settings = {
    ...{ baseUrl: undefined, apiKey: undefined, timeoutMs },
    servers: servers.map((server) => ({ ...server, apiKey: `key of ${server.name}` })),
  };
  const { provider, close } = openProvider(settings, catalog, { metrics, log: createLogger('silent') });
  t.teardown(async () => {
    await Promise.all(upstreams.map((upstream) => upstream.close().catch(() => {})));
    await close();
  });
  const of = ({ requests }: StubUpstream) => requests.filter(({ path }) => path === '/v1/audio/speech');
  return {
    provider,
    upstreams,
    speak: (signal = NEVER) =>
      provider.synthesize(
        { text: 'a canary sings', model: 'name', voice: 'voice', speed: 1, modelId: 'acme/model' },
        signal,
      ),
    asked: () => upstreams.map((upstream) => of(upstream).length),
    probes: (index) =>
      (upstreams[index] as StubUpstream).requests
        .map(({ method, path, headers }) => `${method} ${path} ${headers.authorization}`)
        .filter((line) => !line.startsWith('POST')),
    metric: async (sample) => {
      const line = (await metrics.scrape()).split('\n').find((each) => each.startsWith(`${sample} `));
      return line === undefined ? undefined : Number(line.slice(sample.length + 1));
    },
  };
}

async function catalogOf(
  t: Test,
  servers: readonly { readonly name: Name; readonly baseUrl: string }[],
  { silencePercent, model, first }: { silencePercent: number; model: object; first: object },
): Promise<Catalog> {
  const file = {
    ...{ markupPercent: 100, defaultModel: 'acme/model', silencePercent, upstreams: servers },
    models: [
      {
        ...{ id: 'acme/model', provider: 'acme', name: 'Model', description: 'A model.', upstreamModel: 'name' },
        ...{ baseRatePicoUsdPerCharacter: 100, maxInputCharacters: 1000, defaultVoice: 'anna', available: true },
        voices: [{ voice: 'anna', name: 'Anna', upstreamVoice: 'voice' }],
        upstreams: servers.map(({ name }, index) =>
          index === 0
            ? { name, ...first }
            : { name, model: `model of ${name}`, voices: { anna: `voice of ${name}` }, costPicoUsdPerCharacter: index },
        ),
        ...model,
      },
    ],
  };
  return loadCatalog(await catalogFile(t, file));
}
