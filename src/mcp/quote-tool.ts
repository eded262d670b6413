import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import { formatUsd } from '../lib/money.ts';
import { serviceId } from '../lib/service-words.ts';
import { requiredText, toolInput } from './arguments.ts';
import { leftUsd, usd, usdOrNull } from './money.ts';
import { ORDER_ARGUMENTS, orderOf } from './order.ts';
import type { McpParts } from './server.ts';
import { failed } from './tool-error.ts';

/** Tells a price before it is paid. */
export function addQuote(server: McpServer, { client, budget }: Pick<McpParts, 'client' | 'budget'>): void {
  server.registerTool(
    'quote',
    {
      title: 'Quote a price',
      description: 'Tells what speak would charge for a text. Free; only its length and SHA-256 leave this machine.',
      inputSchema: toolInput('quote', { text: requiredText('text', 'What would be spoken.'), ...ORDER_ARGUMENTS }),
      outputSchema: {
        priceUsd: usd('The price'),
        characters: z.number().describe('What is charged for: the length of the trimmed text.'),
        model: z.string(),
        expiresAt: z.string().describe('Until when the price holds.'),
        budgetLeftUsd: usdOrNull('What the budget leaves; null where its sum is not limited'),
      },
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    async ({ text, ...how }, { signal }) => {
      try {
        const quote = await client.quote(orderOf(text, how), { signal });
        const { amountMicroUsd, textLength } = quote;
        const [model, expiresAt] = [serviceId(quote.model), serviceId(quote.expiresAt)];
        const priceUsd = formatUsd(amountMicroUsd);
        const budgetLeftUsd = await leftUsd(budget);
        return {
          structuredContent: { priceUsd, characters: textLength, model, expiresAt, budgetLeftUsd },
          content: [{ type: 'text', text: `${textLength} characters with ${model}: ${priceUsd} USD.` }],
        };
      } catch (error) {
        return failed(error);
      }
    },
  );
}
