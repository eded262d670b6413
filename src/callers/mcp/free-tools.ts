import type { McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { counted } from '../../lib/counted.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceId, serviceNames } from '../../lib/service-words.ts';
import { plainCatalog } from '../../speech/plain-catalog.ts';
import { number, ORDER_ARGUMENTS, orderOf, requiredText, text, toolInput, toolOutput } from './arguments.ts';
import { formatted, leftUsd, ToolError, toResult, usd, usdOrNull } from './results.ts';
import type { OpenParts } from './server.ts';

const MODELS_A_PAGE = 10;
const VOICES_A_PAGE = 20;
const MAX_OPEN = 20;
const annotations = { readOnlyHint: true, openWorldHint: true };

export function addListVoices(server: McpServer, openParts: OpenParts): void {
  server.registerTool(
    'list_voices',
    {
      title: 'List voices',
      description: 'Lists the models of the service with their prices, limits and voices. This is free.',
      inputSchema: toolInput('list_voices', {
        model: text('model', "Lists only this model's voices; default: all models."),
        page: number('page', { min: 1, max: 1_000 }, 'The page of models, or of the voices of one model; default: 1.'),
      }),
      outputSchema: toolOutput({
        defaultModel: z.string(),
        pages: z.number().describe('The number of pages.'),
        models: z.array(
          z.object({
            id: z.string().describe('The model argument of quote and speak.'),
            name: z.string(),
            description: z.string(),
            usdPerMillionCharacters: z.number(),
            maxCharacters: z.number(),
            defaultVoice: z.string(),
            voiceCount: z.number().describe('The number of voices. Pass the model to list all of them.'),
            voices: z.array(
              z.object({ id: z.string().describe('The voice argument of quote and speak.'), name: z.string() }),
            ),
          }),
        ),
      }),
      annotations,
    },
    ({ model, page = 1 }, { mcpReq: { signal } }) =>
      toResult(async () => {
        const { client } = openParts();
        const catalog = plainCatalog(await client.models({ signal }));
        const matching = catalog.models.filter(({ id }) => model === undefined || id === model);
        if (matching.length === 0) {
          const known = serviceNames(catalog.models.map(({ id }) => id));
          throw new ToolError(`model ${model} does not exist. Use one of ${known}. Nothing was bought.`);
        }
        const isSingle = model !== undefined;
        const pages = isSingle ? pagesOf(matching[0]?.voices ?? [], VOICES_A_PAGE) : pagesOf(matching, MODELS_A_PAGE);
        const listed = isSingle ? matching : pageOf(matching, page, MODELS_A_PAGE);
        const models = listed.map(({ id, name, description, pricing, maxInputCharacters, defaultVoice, voices }) => ({
          id,
          name,
          description,
          usdPerMillionCharacters: pricing.ratePerMillionCharsUsd,
          maxCharacters: maxInputCharacters,
          defaultVoice,
          voiceCount: voices.length,
          voices: pageOf(voices, isSingle ? page : 1, VOICES_A_PAGE).map(({ id, name }) => ({ id, name })),
        }));
        const document = { defaultModel: catalog.defaultModel, pages, models };
        return [document, JSON.stringify(document)];
      }),
  );
}

const pagesOf = (items: readonly unknown[], size: number): number => Math.max(1, Math.ceil(items.length / size));

const pageOf = <Item>(items: readonly Item[], page: number, size: number): readonly Item[] =>
  items.slice((Math.floor(page) - 1) * size, Math.floor(page) * size);

export function addQuote(server: McpServer, openParts: OpenParts): void {
  server.registerTool(
    'quote',
    {
      title: 'Quote a price',
      description: 'Returns the price of a text. This is free, and sends only the length and SHA-256 of the text.',
      inputSchema: toolInput('quote', { text: requiredText('text', 'The text to price.'), ...ORDER_ARGUMENTS }),
      outputSchema: toolOutput({
        priceUsd: usd('The price'),
        characters: z.number().describe('The billed length: the characters of the trimmed text.'),
        model: z.string(),
        expiresAt: z.string().describe('When the price expires.'),
        budgetLeftUsd: usdOrNull('The remaining budget; null if it has no limit'),
      }),
      annotations,
    },
    ({ text, ...voiceArguments }, { mcpReq: { signal } }) =>
      toResult(async () => {
        const { client, budget, flow } = openParts();
        const quote = await client.quote(orderOf(text, voiceArguments), { signal });
        const { amountMicroUsd, textLength: characters } = quote;
        const [model, expiresAt] = [serviceId(quote.model), serviceId(quote.expiresAt)];
        const priceUsd = formatUsd(amountMicroUsd);
        const budgetLeftUsd = await leftUsd(budget, flow);
        const line = `${counted(characters, 'character')} with ${model}: ${priceUsd} USD.`;
        return [{ priceUsd, characters, model, expiresAt, budgetLeftUsd }, line];
      }),
  );
}

/** Never shows the account's id, which is a bearer secret. */
export function addBalance(server: McpServer, openParts: OpenParts): void {
  server.registerTool(
    'balance',
    {
      title: 'Show balance and budget',
      description:
        'Returns the account or prepaid balance, what is left of the budget that your user has set, and the open purchases. This is free.',
      inputSchema: toolInput('balance', {}),
      outputSchema: toolOutput({
        balanceUsd: usdOrNull('The account or prepaid balance; null if each call is paid on the chain'),
        budgetLeftUsd: usdOrNull('The remaining budget; null if it has no limit'),
        spentTodayUsd: usd('Spent since midnight UTC'),
        spentUsd: usd('Spent in total'),
        reservedUsd: usd('Reserved for purchases that may still be charged'),
        openPurchases: z
          .array(
            z.object({
              identifier: z.string().describe('Call speak with {"resume": identifier} to get its speech.'),
              flow: z.enum(['card', 'direct', 'prepaid']),
              maxUsd: usd('The maximum price'),
            }),
          )
          .describe(
            `Purchases that still run, whose outcome is unknown, or whose speech was not fetched; at most ${MAX_OPEN}. Resuming never pays twice.`,
          ),
      }),
      annotations,
    },
    (_none, { mcpReq: { signal } }) =>
      toResult(async () => {
        const { client, budget, saved, flow } = openParts();
        const state = await budget.read(flow);
        const unsettled = await budget.resumable();
        const unfetched = (await saved.list()).map(({ pending }) => pending).filter(({ kind }) => kind === 'speech');
        const open = new Map([...unsettled, ...unfetched].map((pending) => [pending.identifier, pending]));
        const openPurchases = [...open.values()].slice(0, MAX_OPEN).map(({ identifier, flow, maxMicroUsd }) => ({
          identifier,
          flow,
          maxUsd: formatUsd(BigInt(maxMicroUsd)),
        }));
        const balanceUsd = flow === 'direct' ? null : formatUsd((await client.balance({ signal })).balanceMicroUsd);
        const budgetLeftUsd = formatted(state.leftMicroUsd);
        const document = {
          balanceUsd,
          budgetLeftUsd,
          spentTodayUsd: formatUsd(state.spentTodayMicroUsd),
          spentUsd: formatUsd(state.spentMicroUsd),
          reservedUsd: formatUsd(state.reservedMicroUsd),
          openPurchases,
        };
        const balance =
          balanceUsd === null
            ? 'Each call is paid on the chain, so there is no balance.'
            : `The balance is ${balanceUsd} USD.`;
        const left =
          budgetLeftUsd === null ? 'The budget has no limit.' : `${budgetLeftUsd} USD of the budget is left.`;
        const resume = openPurchases.map(
          ({ identifier, maxUsd }) =>
            ` The purchase ${identifier} is not finished, and you may have been charged up to ${maxUsd} USD: call speak with {"resume": "${identifier}"}, which never pays twice.`,
        );
        return [document, `${balance} ${left}${resume.join('')}`];
      }),
  );
}
