import type { Config } from '../settings/config.ts';
import { collectSpeech } from '../speech/collect.ts';
import { openProvider } from '../speech/open-provider.ts';
import { SpeechError, type SpeechProvider } from '../speech/provider.ts';
import { type Area, type Finding, fault, off, ok, skipped } from './check.ts';
import type { Patient } from './patient.ts';

const NAME = 'upstream';
const WORD = 'Hello';
const SPARE_MS = 5_000;

type Model = Config['catalog']['models'][number];

/** Has each model of the catalog speak one word with its default voice. */
export async function speechChecks({ config, speaks }: Pick<Patient, 'config' | 'speaks'>): Promise<Area> {
  const { speech, catalog } = config;
  if (!speech) return off([NAME], 'SPEECH_BASE_URL is unset: speech answers 503.');
  if (!speaks) return off([NAME], 'It was not asked to speak.');
  const provider = await openProvider(speech);
  return {
    checks: catalog.models.map((model) => ({
      name: NAME,
      about: model.id,
      limitMs: speech.timeoutMs + SPARE_MS,
      run: async () =>
        model.available
          ? speaksModel(provider, model, speech.timeoutMs)
          : skipped('The catalog says that it is not available.'),
    })),
    close: () => provider.close(),
  };
}

async function speaksModel(provider: SpeechProvider, model: Model, timeoutMs: number): Promise<Finding> {
  const { upstreamModel, defaultVoice } = model;
  const asked = `${upstreamModel} with ${defaultVoice.upstreamVoice}`;
  const begunAt = performance.now();
  try {
    const utterance = { text: WORD, model: upstreamModel, voice: defaultVoice.upstreamVoice, speed: 1 };
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
      'Correct SPEECH_BASE_URL, SPEECH_API_KEY, or upstreamModel and upstreamVoice in CATALOG_FILE; see the log of the ' +
        'upstream.',
    );
  }
}
