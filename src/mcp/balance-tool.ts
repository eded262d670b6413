import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import { formatUsd } from '../lib/money.ts';
import { toolInput } from './arguments.ts';
import { formatted, usd, usdOrNull } from './money.ts';
import type { McpParts } from './server.ts';
import { failed } from './tool-error.ts';

const MOST_OPEN = 20;

/** Tells what can still be spent. The account's id stays here: who knows it could spend its credit. */
export function addBalance(server: McpServer, { client, budget, kept, flow }: McpParts): void {
  server.registerTool(
    'balance',
    {
      title: 'Tell balance and budget',
      description:
        'Tells what is left of the account or prepaid balance, and of the budget that your user has set, and which ' +
        'purchases are open. Free.',
      inputSchema: toolInput('balance', {}),
      outputSchema: {
        balanceUsd: usdOrNull('What the account or prepaid balance has; null where each call is paid by itself'),
        budgetLeftUsd: usdOrNull('What the budget leaves; null where its sum is not limited'),
        spentTodayUsd: usd('What was spent since midnight UTC'),
        spentUsd: usd('What was spent in total'),
        reservedUsd: usd('What is kept for purchases that run, or whose end is not known yet'),
        openPurchases: z
          .array(
            z.object({
              identifier: z.string().describe('Call speak with {"resume": identifier} to get its speech.'),
              flow: z.enum(['card', 'direct', 'prepaid']),
              maxUsd: usd('The most that it cost or may cost'),
            }),
          )
          .describe(
            `Purchases that run, whose end is not known yet, or whose speech was not fetched; at most ${MOST_OPEN} of ` +
              'them. Never paid twice.',
          ),
      },
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    async (_none, { signal }) => {
      try {
        const state = await budget.read();
        const open = new Map(
          [...(await budget.resumable()), ...(await kept.list())].map((pending) => [pending.identifier, pending]),
        );
        const openPurchases = [...open.values()].slice(0, MOST_OPEN).map(({ identifier, flow, maxMicroUsd }) => ({
          identifier,
          flow,
          maxUsd: formatUsd(BigInt(maxMicroUsd)),
        }));
        // A wallet that pays each call by itself has no balance with the service.
        const balanceUsd = flow === 'direct' ? null : formatUsd((await client.balance({ signal })).balanceMicroUsd);
        const budgetLeftUsd = formatted(state.leftMicroUsd);
        const structuredContent = {
          balanceUsd,
          budgetLeftUsd,
          spentTodayUsd: formatUsd(state.spentTodayMicroUsd),
          spentUsd: formatUsd(state.spentMicroUsd),
          reservedUsd: formatUsd(state.reservedMicroUsd),
          openPurchases,
        };
        const balance = balanceUsd === null ? 'Each call is paid by itself.' : `The balance is ${balanceUsd} USD.`;
        const left = budgetLeftUsd === null ? 'The budget has no limit.' : `The budget leaves ${budgetLeftUsd} USD.`;
        const resume = openPurchases.map(
          ({ identifier, maxUsd }) => ` Open: ${identifier} (${maxUsd} USD); resume it with speak.`,
        );
        return { structuredContent, content: [{ type: 'text', text: `${balance} ${left}${resume.join('')}` }] };
      } catch (error) {
        return failed(error);
      }
    },
  );
}
