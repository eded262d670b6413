import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import type { Purchases } from '../budget/purchases.ts';
import { AudioLostError, ServiceError, type Speech } from '../client/index.ts';
import { formatUsd, parseUsd } from '../lib/money.ts';
import { serviceId } from '../lib/service-words.ts';
import { dollars, flag, text, toolInput } from './arguments.ts';
import { formatted, leftUsd, usd, usdOrNull } from './money.ts';
import { ORDER_ARGUMENTS, orderOf } from './order.ts';
import { type Extra, reportProgress } from './progress.ts';
import { secondsOf } from './seconds.ts';
import type { McpParts } from './server.ts';
import type { SharedPurchases } from './shared-purchases.ts';
import type { PlannedFile } from './speech-folder.ts';
import { failed, ToolError } from './tool-error.ts';

const INPUT = toolInput('speak', {
  text: text('text', 'What to speak: plain text. Left out with resume only.'),
  ...ORDER_ARGUMENTS,
  file: text('file', 'The name of the file, such as hello.mp3, without folders; a new one by default.'),
  overwrite: flag('overwrite', 'Whether a file of that name may be replaced. It is not by default.'),
  maxUsd: dollars(
    'maxUsd',
    'The most that this call may cost, in US dollars, such as "0.01". Nothing is bought above it.',
  ),
  resume: text(
    'resume',
    'The identifier that an earlier call gave whose outcome was unknown: fetches its speech, never pays twice.',
  ),
});

const OUTPUT = {
  path: z.string().describe('Where the audio is.'),
  seconds: z.number().nullable().describe('How long it plays; null where that could not be told.'),
  bytes: z.number(),
  contentType: z.enum(['audio/mpeg', 'audio/wav']),
  priceUsd: usd('What was charged'),
  receipt: z.object({
    flow: z.enum(['card', 'direct', 'prepaid']),
    identifier: z.string().nullable().describe('Of the payment.'),
    transaction: z.string().nullable().describe('On the chain, of a direct payment.'),
    isReplay: z.boolean().describe('Whether an earlier call had paid it, whose answer was lost.'),
    balanceUsd: usdOrNull('What is left of the account or prepaid balance; null where it was not told'),
    traceId: z.string().describe('By this the operator of the service finds the request.'),
  }),
  budgetLeftUsd: usdOrNull(
    'What the budget leaves for further calls; null where its sum is not limited, or was not to be read',
  ),
};

type Arguments = z.infer<typeof INPUT>;

/** Buys speech into a file of the allowed folder. */
export function addSpeak(server: McpServer, parts: McpParts, purchases: Purchases, shared: SharedPurchases): void {
  server.registerTool(
    'speak',
    {
      title: 'Speak a text',
      description:
        'Turns a text into speech, writes it to a file, and pays for it from the budget. Tells path, length, price, ' +
        'receipt and what the budget leaves. It costs money each time: ask quote for the price.',
      inputSchema: INPUT,
      outputSchema: OUTPUT,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
    },
    async (given, extra) => {
      try {
        return await speak({ ...parts, purchases, shared }, given, extra);
      } catch (error) {
        return failed(error);
      }
    },
  );
}

interface SpeakParts extends McpParts {
  readonly purchases: Purchases;
  readonly shared: SharedPurchases;
}

async function speak(parts: SpeakParts, given: Arguments, extra: Extra) {
  const { budget, kept, folder, shared } = parts;
  const { text, resume } = given;
  if ((text === undefined) === (resume === undefined)) {
    throw new ToolError('Say either text, or resume with the identifier of an earlier call. Nothing was bought.');
  }
  const file = await folder.plan(given.file, given.overwrite ?? false);
  const stopReporting = reportProgress(extra, 'speaking');
  try {
    const { speech, isShared } =
      resume === undefined
        ? await shared.buy(orderOf(text as string, given), limitsOf(given), extra.signal)
        : { speech: await resumed(parts, resume, extra.signal), isShared: false };
    const audio = await speech.bytes();
    const path = await written(file, audio, speech);
    if (resume !== undefined) await kept.drop(resume).catch(() => {});
    const { chargedMicroUsd, balanceMicroUsd, ...receipt } = speech.receipt;
    const seconds = secondsOf(audio, speech.contentType);
    const priceUsd = formatUsd(chargedMicroUsd);
    // What was paid for is had all the same where the budget can't be read just now.
    const budgetLeftUsd = await leftUsd(budget).catch(() => null);
    const structuredContent = {
      path,
      seconds,
      bytes: audio.length,
      contentType: speech.contentType,
      priceUsd,
      receipt: {
        ...receipt,
        transaction: receipt.transaction && serviceId(receipt.transaction),
        traceId: serviceId(receipt.traceId),
        isReplay: receipt.isReplay || isShared,
        balanceUsd: formatted(balanceMicroUsd),
      },
      budgetLeftUsd,
    };
    const left = budgetLeftUsd === null ? '' : ` The budget leaves ${budgetLeftUsd} USD.`;
    const length = seconds === null ? '' : ` (${seconds} s)`;
    const paid = isShared ? ', paid once by an earlier call' : '';
    const line = `The speech is in ${path}${length}. It cost ${priceUsd} USD${paid}.${left}`;
    return { structuredContent, content: [{ type: 'text' as const, text: line }] };
  } finally {
    stopReporting();
    await file.close();
  }
}

function limitsOf({ maxUsd }: Arguments) {
  const maxMicroUsd = maxUsd === undefined ? undefined : parseUsd(maxUsd);
  return { ...(maxMicroUsd !== undefined && { maxMicroUsd }) };
}

/** Asks for the speech of a purchase whose end was unknown, and settles it in the budget, whichever process bought it. */
async function resumed(
  { client, budget, kept, purchases }: SpeakParts,
  identifier: string,
  signal: AbortSignal,
): Promise<Speech> {
  const found = await budget.find(identifier);
  const pending = found?.pending ?? (await kept.find(identifier));
  if (!pending) {
    throw new ToolError(`No purchase ${identifier} is open: it was settled, or never begun. balance tells the budget.`);
  }
  try {
    const speech = await client.resume(pending, { signal });
    await found?.reservation.settle(speech.receipt.chargedMicroUsd);
    purchases.forget(identifier);
    return speech;
  } catch (error) {
    if (error instanceof AudioLostError) await found?.reservation.settle(error.chargedMicroUsd ?? error.maxMicroUsd);
    if (error instanceof ServiceError) await found?.reservation.settle(0n);
    if (error instanceof AudioLostError || error instanceof ServiceError) {
      purchases.forget(identifier);
      await kept.drop(identifier);
    }
    throw error;
  }
}

async function written(file: PlannedFile, audio: Uint8Array, { contentType, receipt }: Speech): Promise<string> {
  try {
    return await file.write(audio, contentType);
  } catch (error) {
    const price = formatUsd(receipt.chargedMicroUsd);
    throw new ToolError(
      `${price} USD were charged (trace id ${serviceId(receipt.traceId)}), and the audio could not be written: ` +
        `${(error as Error).message}. Tell your user; asking again is a new purchase.`,
    );
  }
}
