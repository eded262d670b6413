import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './rows.ts';

/** `speechgate models` */
await runCommand({
  usage: `speechgate models
The models that the service speaks with, what a character costs, and the most characters of a request.
${ALL_USAGE}`,
  example: 'speechgate models',
  options: { ...COMMON_OPTIONS, ...ALL_OPTION },
  maxWords: 0,
  run: async ({ all }, _words, output) => {
    const { client } = await openCaller();
    const { models, defaultModel } = await withProgress('Asking for the models', output.isJson, client.models());
    const head = ['model', 'per 1,000,000', 'characters', 'name'];
    const lines = rowsOf(
      models,
      { all },
      ({ id, pricing, maxInputCharacters, name, available }) => {
        const remarks = [name, id === defaultModel ? 'the default' : '', available ? '' : 'not available now'];
        const rate = `${pricing.ratePerMillionCharsUsd} USD`;
        return [id, rate, String(maxInputCharacters), remarks.filter(Boolean).join(', ')];
      },
      head,
    );
    output.done({ defaultModel, models }, lines);
  },
});
