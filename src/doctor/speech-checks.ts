import type { Config } from '../settings/config.ts';
import type { SpeechConfig } from '../settings/speech-settings.ts';
import { DEFAULT_UPSTREAM } from '../speech/catalog-upstreams.ts';
import { collectSpeech } from '../speech/collect.ts';
import { openServer } from '../speech/open-provider.ts';
import { SpeechError, type SpeechProvider } from '../speech/provider.ts';
import { type Area, type Check, type Finding, fault, off, ok, skipped } from './check.ts';
import type { Patient } from './patient.ts';

const NAME = 'upstream';
const WORD = 'Hello';
const SPARE_MS = 5_000;

type Model = Config['catalog']['models'][number];

/** What an upstream is asked for, in its own names. */
interface Asked {
  readonly model: string;
  readonly voice: string;
}

/** Has each upstream of each model speak one word with the default voice, so that none stands in for another. */
export async function speechChecks({ config, speaks }: Pick<Patient, 'config' | 'speaks'>): Promise<Area> {
  const { speech, catalog } = config;
  if (!speech) return off([NAME], 'SPEECH_BASE_URL is unset: speech answers 503.');
  if (!speaks) return off([NAME], 'It was not asked to speak.');
  const providers = await openAll(speech);
  const checkOf = (model: Model, named: Model['upstreams'][number]): Check[] => {
    const provider = providers.get(named.name);
    if (!provider) return [];
    const { upstreamVoice } = model.defaultVoice;
    const asked = { model: named.model, voice: named.voices.get(upstreamVoice) ?? upstreamVoice };
    const run = async () =>
      model.available
        ? speaksModel(provider, asked, speech.timeoutMs)
        : skipped('The catalog says that it is not available.');
    const isOnly = model.upstreams.length === 1;
    const about = isOnly ? model.id : `${model.id} by ${named.name}`;
    return [{ name: NAME, about, limitMs: speech.timeoutMs + SPARE_MS, run }];
  };
  return {
    checks: catalog.models.flatMap((model) => model.upstreams.flatMap((named) => checkOf(model, named))),
    close: async () => {
      await Promise.all([...providers.values()].map((provider) => provider.close()));
    },
  };
}

/** By the names that the catalog has for them. */
async function openAll({ baseUrl, apiKey, timeoutMs, servers }: SpeechConfig): Promise<Map<string, SpeechProvider>> {
  const own = baseUrl === undefined ? [] : [{ name: DEFAULT_UPSTREAM, baseUrl, apiKey }];
  const opened = [...own, ...servers].map(
    async (server) => [server.name, await openServer(server.baseUrl, server.apiKey, timeoutMs)] as const,
  );
  return new Map(await Promise.all(opened));
}

async function speaksModel(provider: SpeechProvider, { model, voice }: Asked, timeoutMs: number): Promise<Finding> {
  const asked = `${model} with ${voice}`;
  const begunAt = performance.now();
  try {
    const utterance = { text: WORD, model, voice, speed: 1 };
    const { mimeType, audio } = await collectSpeech(provider, utterance, AbortSignal.timeout(timeoutMs));
    if (mimeType !== 'audio/mpeg') {
      const fix = 'Only card speech that is streamed takes WAV: have the upstream honour response_format mp3.';
      return fault(`${asked} speaks WAV where MP3 was asked for.`, fix);
    }
    const ms = Math.round(performance.now() - begunAt);
    return ok(`${asked} spoke a word (${audio.length} bytes) in ${ms} ms.`);
  } catch (error) {
    if (!(error instanceof SpeechError)) throw error;
    return fault(
      `${asked} does not speak: ${error.message}`,
      'Correct its address, its key, or its names of model and voice (SPEECH_BASE_URL, SPEECH_API_KEY, CATALOG_FILE); see ' +
        'the log of the upstream.',
    );
  }
}
