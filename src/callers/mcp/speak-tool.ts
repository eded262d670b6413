import type { McpServer, ServerContext, StandardSchemaWithJSON } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { formatUsd, parseUsd } from '../../lib/money.ts';
import { serviceId } from '../../lib/service-words.ts';
import { audioStart, frameLength, frameSeconds } from '../../speech/mpeg-frame.ts';
import { isPlayable, waveChunks } from '../../speech/wave-audio.ts';
import { wholeAudio } from '../../speech/whole-audio.ts';
import { Recording } from '../budget/recording.ts';
import { AudioLostError, ServiceError } from '../client/index.ts';
import { dollars, flag, ORDER_ARGUMENTS, orderOf, text, toolInput, toolOutput } from './arguments.ts';
import { formatted, leftUsd, ToolError, toResult, usd, usdOrNull } from './results.ts';
import type { OpenParts, SpeakParts } from './server.ts';
import type { PlannedFile } from './speech-folder.ts';

const INPUT = toolInput('speak', {
  text: text('text', 'The plain text to speak. Omit it only with resume.'),
  ...ORDER_ARGUMENTS,
  file: text('file', 'The file name without folders, such as hello.mp3; default: a new name.'),
  overwrite: flag('overwrite', 'Replaces an existing file of that name; default: false.'),
  maxUsd: dollars(
    'maxUsd',
    'The maximum price of this call in US dollars, such as "0.01". If the price is higher, nothing is bought.',
  ),
  resume: text(
    'resume',
    'The identifier of an earlier call whose outcome is unknown. Fetches the speech of that call, and never pays twice.',
  ),
});

const OUTPUT = toolOutput({
  path: z.string().describe('The path of the audio file.'),
  seconds: z.number().nullable().describe('The duration; null if unknown.'),
  bytes: z.number(),
  contentType: z.enum(['audio/mpeg', 'audio/wav']),
  priceUsd: usd('The charge'),
  receipt: z.object({
    flow: z.enum(['card', 'direct', 'prepaid']),
    identifier: z.string().nullable().describe('The identifier of the payment.'),
    transaction: z.string().nullable().describe('The transaction on the chain; null unless the payment is direct.'),
    isReplay: z
      .boolean()
      .describe('True if an earlier call paid and its response was lost. This call paid nothing more.'),
    balanceUsd: usdOrNull('The remaining account or prepaid balance; null if not reported'),
    traceId: z.string().describe('The id by which the operator of the service finds the request.'),
  }),
  budgetLeftUsd: usdOrNull('The remaining budget; null if it has no limit or could not be read'),
});

type Arguments = StandardSchemaWithJSON.InferOutput<typeof INPUT>;

export function addSpeak(server: McpServer, openParts: OpenParts): void {
  server.registerTool(
    'speak',
    {
      title: 'Speak a text',
      description:
        'Turns a text into speech, writes it to a file, and pays for it from the budget. Returns path, duration, price, ' +
        'receipt and the remaining budget. Each call costs money; quote returns the price for free.',
      inputSchema: INPUT,
      outputSchema: OUTPUT,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
    },
    (args, { mcpReq }) => toResult(async () => speak(openParts(), args, mcpReq)),
  );
}

async function speak(
  parts: SpeakParts,
  args: Arguments,
  request: CallRequest,
): Promise<[document: Record<string, unknown>, line: string]> {
  const { budget, saved, folder, purchases } = parts;
  const { text, resume } = args;
  if ((text === undefined) === (resume === undefined)) {
    throw new ToolError('Pass exactly one of the arguments text and resume. Nothing was bought.');
  }
  const maxMicroUsd = args.maxUsd === undefined ? undefined : parseUsd(args.maxUsd);
  const file = await folder.plan(args.file, args.overwrite ?? false);
  const stopReporting = reportProgress(request);
  try {
    const { signal } = request;
    const { recording, isRepeated } =
      resume === undefined
        ? purchases.buy(orderOf(text as string, args), { signal, ...(maxMicroUsd !== undefined && { maxMicroUsd }) })
        : { recording: resumePurchase(parts, resume, signal), isRepeated: false };
    const heard = await recording;
    const { contentType, receipt } = heard.speech;
    const audio = wholeAudio(contentType, await heard.whole());
    const path = await writeAudio(file, audio, heard.speech);
    if (resume !== undefined) await saved.drop(resume).catch(() => {});
    const { flow, identifier, transaction, isReplay, traceId, chargedMicroUsd, balanceMicroUsd } = receipt;
    const seconds = secondsOf(audio, contentType);
    const priceUsd = formatUsd(chargedMicroUsd);
    // Returns the paid audio even if the budget can't be read.
    const budgetLeftUsd = await leftUsd(budget, flow).catch(() => null);
    const document = {
      path,
      seconds,
      bytes: audio.length,
      contentType,
      priceUsd,
      receipt: {
        flow,
        identifier,
        transaction: transaction && serviceId(transaction),
        isReplay: isReplay || isRepeated,
        balanceUsd: formatted(balanceMicroUsd),
        traceId: serviceId(traceId),
      },
      budgetLeftUsd,
    };
    const left = budgetLeftUsd === null ? '' : ` ${budgetLeftUsd} USD of the budget is left.`;
    const length = seconds === null ? '' : ` (${seconds} s)`;
    const paid = isRepeated ? ', which an earlier call has paid; this call paid nothing' : '';
    const line = `The speech is in ${path}${length}. It cost ${priceUsd} USD${paid}.${left}`;
    return [document, line];
  } finally {
    stopReporting();
    await file.close();
  }
}

async function resumePurchase(
  { client, budget, saved, purchases }: SpeakParts,
  identifier: string,
  signal: AbortSignal,
): Promise<Recording> {
  const found = await budget.find(identifier);
  const pending = found?.pending ?? (await saved.find(identifier))?.pending;
  if (!pending) {
    throw new ToolError(
      `resume must be the identifier of an open purchase, not ${identifier}. Call balance to list the open ones. Nothing was bought.`,
    );
  }
  try {
    const speech = await client.resume(pending, { signal });
    await found?.reservation.settle(speech.receipt.chargedMicroUsd);
    purchases.forget(identifier);
    return new Recording(speech);
  } catch (error) {
    if (error instanceof AudioLostError) await found?.reservation.settle(error.chargedMicroUsd ?? error.maxMicroUsd);
    if (error instanceof ServiceError) await found?.reservation.settle(0n);
    if (error instanceof AudioLostError || error instanceof ServiceError) {
      purchases.forget(identifier);
      await saved.drop(identifier);
    }
    throw error;
  }
}

async function writeAudio(
  file: PlannedFile,
  audio: Uint8Array,
  { contentType, receipt }: Recording['speech'],
): Promise<string> {
  try {
    return await file.write(audio, contentType);
  } catch (error) {
    const price = formatUsd(receipt.chargedMicroUsd);
    throw new ToolError(
      `The audio could not be written to its file: ${(error as Error).message}. Ask your user to fix that; another call is a ` +
        `new purchase. You were charged ${price} USD (trace id ${serviceId(receipt.traceId)}).`,
    );
  }
}

type CallRequest = ServerContext['mcpReq'];

function reportProgress({ _meta, notify, signal }: CallRequest): () => void {
  const progressToken = _meta?.progressToken;
  if (progressToken === undefined) return () => {};
  let seconds = 0;
  const timer = setInterval(() => {
    seconds += 1;
    if (signal.aborted) return;
    const params = { progressToken, progress: seconds, message: `synthesizing, ${seconds} s` };
    // Ignores a closed connection; the call itself ends by its signal.
    notify({ method: 'notifications/progress', params }).catch(() => {});
  }, 1000);
  return () => clearInterval(timer);
}

/** No codec has a lower rate, so a lower one in the header is invalid. */
const MIN_BYTES_PER_SECOND = 1_000;

/** The duration; null if the bytes do not contain it. */
export function secondsOf(audio: Uint8Array, contentType: 'audio/mpeg' | 'audio/wav'): number | null {
  const seconds = contentType === 'audio/mpeg' ? mpegSeconds(audio) : waveSeconds(audio);
  return seconds === undefined ? null : Math.round(seconds * 1000) / 1000;
}

function mpegSeconds(audio: Uint8Array): number | undefined {
  let offset = audioStart(audio);
  let seconds = 0;
  for (;;) {
    const length = frameLength(audio, offset);
    if (length === undefined) return seconds === 0 ? undefined : seconds;
    seconds += frameSeconds(audio, offset);
    offset += length;
  }
}

function waveSeconds(audio: Uint8Array): number | undefined {
  let bytesPerSecond = 0;
  for (const { name, content } of waveChunks(audio)) {
    if (name === 'fmt ' && content.length >= 16 && isPlayable(content.readUInt16LE(2), content.readUInt32LE(4))) {
      bytesPerSecond = content.readUInt32LE(8);
    }
    if (name === 'data') {
      return bytesPerSecond >= MIN_BYTES_PER_SECOND ? content.length / bytesPerSecond : undefined;
    }
  }
  return undefined;
}
