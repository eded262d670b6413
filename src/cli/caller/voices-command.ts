import { tableLine } from '../table-line.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';

/** `speechgate voices` */
await runCommand({
  usage: `speechgate voices [--model MODEL]
The voices of a model, as say --voice takes them.

  --model MODEL    one of those that speechgate models lists; otherwise the default one`,
  example: 'speechgate voices',
  options: { ...COMMON_OPTIONS, model: { type: 'string' } },
  maxWords: 0,
  run: async ({ model }, _words, output) => {
    const { client } = await openCaller();
    const listed = await withProgress('Asking for the voices', output.isJson, client.voices(model));
    const widths = [Math.max(5, ...listed.voices.map(({ id }) => id.length))];
    const lines = listed.voices.map(({ id, name }) => tableLine(widths, [id, name]));
    output.done({ model: listed.model, voices: listed.voices }, [tableLine(widths, ['voice', 'name']), ...lines]);
  },
});
