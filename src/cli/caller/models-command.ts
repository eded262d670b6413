import { tableLine } from '../table-line.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';

/** `speechgate models` */
await runCommand({
  usage: `speechgate models
The models that the service speaks with, what a character costs, and the most characters of a request.
`,
  example: 'speechgate models',
  options: COMMON_OPTIONS,
  maxWords: 0,
  run: async (_values, _words, output) => {
    const { client } = await openCaller();
    const { models, defaultModel } = await withProgress('Asking for the models', output.isJson, client.models());
    const widths = [Math.max(5, ...models.map(({ id }) => id.length)), 14, 10];
    const lines = models.map(({ id, pricing, maxInputCharacters, name, available }) => {
      const remarks = [name, id === defaultModel ? 'the default' : '', available ? '' : 'not available now'];
      const rate = `${pricing.ratePerMillionCharsUsd} USD`;
      return tableLine(widths, [id, rate, String(maxInputCharacters), remarks.filter(Boolean).join(', ')]);
    });
    output.done({ defaultModel, models }, [
      tableLine(widths, ['model', 'per 1,000,000', 'characters', 'name']),
      ...lines,
    ]);
  },
});
