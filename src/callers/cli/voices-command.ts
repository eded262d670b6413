import { COMMON_OPTIONS, runCommand } from './command.ts';
import { withCaller } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf, withProgress } from './output.ts';

await runCommand({
  usage: `speechgate voices [--model MODEL]
Lists the voices of a model, for say --voice.

  --model MODEL    a model from speechgate models; default: the default model${ALL_USAGE}`,
  example: 'speechgate voices',
  options: { ...COMMON_OPTIONS, ...ALL_OPTION, model: { type: 'string' } },
  maxWords: 0,
  run: async ({ model, all }, _words, output) => {
    await withCaller({}, async ({ client }) => {
      const listed = await withProgress('Reading the voices', output.isJson, client.voices(model));
      const lines = rowsOf(listed.voices, { all }, ({ id, name }) => [id, name], ['voice', 'name']);
      output.done({ model: listed.model, voices: listed.voices }, lines);
    });
  },
});
