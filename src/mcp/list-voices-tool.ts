import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import { serviceNames } from '../lib/service-words.ts';
import { plainCatalog } from '../speech/plain-catalog.ts';
import { number, text, toolInput } from './arguments.ts';
import type { McpParts } from './server.ts';
import { failed, ToolError } from './tool-error.ts';

const MODELS_A_PAGE = 10;
const VOICES_A_PAGE = 20;

/** Tells which models there are, and their voices. */
export function addListVoices(server: McpServer, { client }: Pick<McpParts, 'client'>): void {
  server.registerTool(
    'list_voices',
    {
      title: 'List voices',
      description: 'Lists the models, their prices, limits and voices. Free.',
      inputSchema: toolInput('list_voices', {
        model: text('model', "Only this model's voices; all models when left out."),
        page: number(
          'page',
          { min: 1, max: 1_000 },
          'Which page of models, or of the voices of one model; 1 when left out.',
        ),
      }),
      outputSchema: {
        defaultModel: z.string(),
        pages: z.number().describe('How many pages there are.'),
        models: z.array(
          z.object({
            id: z.string().describe('What quote and speak take as model.'),
            name: z.string(),
            description: z.string(),
            usdPerMillionCharacters: z.number(),
            maxCharacters: z.number(),
            defaultVoice: z.string(),
            voiceCount: z.number().describe('How many voices it has: name the model to list more than the first ones.'),
            voices: z.array(
              z.object({ id: z.string().describe('What quote and speak take as voice.'), name: z.string() }),
            ),
          }),
        ),
      },
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    async ({ model, page = 1 }, { signal }) => {
      try {
        const told = plainCatalog(await client.models({ signal }));
        const chosen = told.models.filter(({ id }) => model === undefined || id === model);
        if (chosen.length === 0) {
          const known = serviceNames(told.models.map(({ id }) => id));
          throw new ToolError(`There is no model ${model}. There are: ${known}.`);
        }
        const isOne = model !== undefined;
        const pages = isOne ? pagesOf(chosen[0]?.voices ?? [], VOICES_A_PAGE) : pagesOf(chosen, MODELS_A_PAGE);
        const shown = isOne ? chosen : pageOf(chosen, page, MODELS_A_PAGE);
        const models = shown.map(({ id, name, description, pricing, maxInputCharacters, defaultVoice, voices }) => ({
          id,
          name,
          description,
          usdPerMillionCharacters: pricing.ratePerMillionCharsUsd,
          maxCharacters: maxInputCharacters,
          defaultVoice,
          voiceCount: voices.length,
          voices: pageOf(voices, isOne ? page : 1, VOICES_A_PAGE).map(({ id, name }) => ({ id, name })),
        }));
        const structuredContent = { defaultModel: told.defaultModel, pages, models };
        return { structuredContent, content: [{ type: 'text', text: JSON.stringify(structuredContent) }] };
      } catch (error) {
        return failed(error);
      }
    },
  );
}

const pagesOf = (items: readonly unknown[], size: number): number => Math.max(1, Math.ceil(items.length / size));

const pageOf = <Item>(items: readonly Item[], page: number, size: number): readonly Item[] =>
  items.slice((Math.floor(page) - 1) * size, Math.floor(page) * size);
