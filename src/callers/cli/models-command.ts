import { defineCommand } from './command.ts';
import { withCaller } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './output.ts';

export const modelsCommand = defineCommand({
  usage: `speechgate models
Lists the models of the service, their prices, and the maximum characters of a request.
${ALL_USAGE}`,
  example: 'speechgate models',
  options: ALL_OPTION,
  run: async ({ all }, { output, host }) => {
    await withCaller(host, {}, async ({ client }) => {
      const { models, defaultModel } = await output.withProgress('Reading the models', client.models());
      const head = ['model', 'per 1,000,000', 'characters', 'name'];
      const lines = rowsOf(
        models,
        { all },
        ({ id, pricing, maxInputCharacters, name, available }) => {
          const remarks = [name, id === defaultModel ? 'the default' : '', available ? '' : 'unavailable'];
          const rate = `${pricing.ratePerMillionCharsUsd} USD`;
          return [id, rate, String(maxInputCharacters), remarks.filter(Boolean).join(', ')];
        },
        head,
      );
      output.done({ defaultModel, models }, lines);
    });
  },
});
