import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import { text, toolInput } from './arguments.ts';
import type { McpParts } from './server.ts';
import { failed, ToolError } from './tool-error.ts';

/** Tells which models there are, and their voices. */
export function addListVoices(server: McpServer, { client }: Pick<McpParts, 'client'>): void {
  server.registerTool(
    'list_voices',
    {
      title: 'List voices',
      description: 'Lists the models, their prices, limits and voices. Free.',
      inputSchema: toolInput('list_voices', {
        model: text('model', "Only this model's voices; all models when left out."),
      }),
      outputSchema: {
        defaultModel: z.string(),
        models: z.array(
          z.object({
            id: z.string().describe('What quote and speak take as model.'),
            name: z.string(),
            description: z.string(),
            usdPerMillionCharacters: z.number(),
            maxCharacters: z.number(),
            defaultVoice: z.string(),
            voices: z.array(
              z.object({ id: z.string().describe('What quote and speak take as voice.'), name: z.string() }),
            ),
          }),
        ),
      },
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    async ({ model }, { signal }) => {
      try {
        const told = await client.models({ signal });
        const chosen = told.models.filter(({ id }) => model === undefined || id === model);
        if (chosen.length === 0) {
          const known = told.models.map(({ id }) => id).join(', ');
          throw new ToolError(`There is no model ${model}. There are: ${known}.`);
        }
        const models = chosen.map(({ id, name, description, pricing, maxInputCharacters, defaultVoice, voices }) => ({
          id,
          name,
          description,
          usdPerMillionCharacters: pricing.ratePerMillionCharsUsd,
          maxCharacters: maxInputCharacters,
          defaultVoice,
          voices: voices.map(({ id, name }) => ({ id, name })),
        }));
        const structuredContent = { defaultModel: told.defaultModel, models };
        return { structuredContent, content: [{ type: 'text', text: JSON.stringify(structuredContent) }] };
      } catch (error) {
        return failed(error);
      }
    },
  );
}
