import { defineCommand } from './command.ts';
import { withCaller } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './output.ts';
import { idsOf } from './read-values.ts';

export const voicesCommand = defineCommand({
  usage: `speechgate voices [--model MODEL]
Lists the voices of a model, for say --voice.

  --model MODEL    a model from speechgate models; default: the default model${ALL_USAGE}`,
  example: 'speechgate voices',
  options: { ...ALL_OPTION, model: { type: 'string' } },
  run: async ({ model, all }, { output, host }) => {
    await withCaller(host, {}, async ({ client }) => {
      const named = model === undefined ? {} : await idsOf({ model }, client);
      const listed = await output.withProgress('Reading the voices', client.voices(named.model));
      const lines = rowsOf(listed.voices, { all }, ({ id, name }) => [id, name], ['voice', 'name']);
      output.done({ model: listed.model, voices: listed.voices }, lines);
    });
  },
});
