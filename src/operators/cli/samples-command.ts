import { tableLine } from '../../lib/printable.ts';
import { createLogger } from '../../observability/logger.ts';
import { Metrics } from '../../observability/metrics.ts';
import { openProvider } from '../../speech/open-provider.ts';
import { StoreError } from '../../speech/store/audio-store.ts';
import { openAudioStore } from '../../speech/store/open-store.ts';
import { SAMPLE_TEXT, speakSamples } from '../../speech/voice-samples.ts';
import { commandSettings, defineCommand, EXIT_FAILED, ExitError, readWholeConfig } from './command.ts';

const COLUMNS = [8, 32];

const USAGE = `speechgate admin samples
Makes and stores one spoken sentence for each voice without a sample. You pay your speech server for it. Callers can hear
the samples for free at /tts/voices/{voice}/sample and on the page at /.
  --again          makes all samples again`;

export const samplesCommand = defineCommand({
  usage: USAGE,
  options: { again: { type: 'boolean', default: false } },
  run: async ({ again }, _words, context) => {
    const { speech, catalog, jobs } = await readWholeConfig(await commandSettings(context), 'speak samples');
    if (!speech)
      throw new ExitError('SPEECH_BASE_URL is not set, so no samples can be made. Set it to your speech server.');
    const { provider, close } = openProvider(speech, catalog, { metrics: new Metrics(), log: createLogger('silent') });
    const store = openAudioStore(jobs.audioStore);
    const count = { spoken: 0, failed: 0 };
    try {
      for await (const { model, voice, failure } of speakSamples(store, provider, catalog, { again })) {
        count[failure ? 'failed' : 'spoken'] += 1;
        const line = [failure ? 'FAILED' : 'spoken', model.id, failure ? `${voice.id}: ${failure.message}` : voice.id];
        context.console.log(tableLine(COLUMNS, line));
      }
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      throw new ExitError(
        `${error.message} The check audio-store of speechgate admin doctor says what to fix. Then run this command again; finished samples are kept.`,
      );
    } finally {
      await Promise.all([close(), store.close()]);
    }
    const { spoken, failed } = count;
    context.console.log(`Samples: ${spoken} made, ${failed} failed, ${SAMPLE_TEXT.length} characters each.`);
    return failed > 0 ? EXIT_FAILED : 0;
  },
});
