import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './rows.ts';

/** `speechgate voices` */
await runCommand({
  usage: `speechgate voices [--model MODEL]
The voices of a model, as say --voice takes them.

  --model MODEL    one of those that speechgate models lists; otherwise the default one${ALL_USAGE}`,
  example: 'speechgate voices',
  options: { ...COMMON_OPTIONS, ...ALL_OPTION, model: { type: 'string' } },
  maxWords: 0,
  run: async ({ model, all }, _words, output) => {
    const { client } = await openCaller();
    const listed = await withProgress('Asking for the voices', output.isJson, client.voices(model));
    const lines = rowsOf(listed.voices, { all }, ({ id, name }) => [id, name], ['voice', 'name']);
    output.done({ model: listed.model, voices: listed.voices }, lines);
  },
});
