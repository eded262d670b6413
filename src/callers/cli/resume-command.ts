import { resolve } from 'node:path';
import { UsageError } from '../../lib/arguments.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceSays } from '../../lib/service-words.ts';
import type { FileBudget } from '../budget/file-budget.ts';
import {
  AudioLostError,
  OutcomeUnknownError,
  type PendingPurchase,
  type Receipt,
  ServiceError,
  type Speech,
  Speechgate,
} from '../client/index.ts';
import { isRepeatable } from '../client/pending-purchase.ts';
import { openAudioFile, otherFormat } from './audio-file.ts';
import { defineCommand } from './command.ts';
import { EXIT, type ExitCode } from './failure.ts';
import { withBudget } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, type CommandProcess, type OutputStream, rowsOf } from './output.ts';
import { flowWord } from './read-values.ts';
import { type SavedPurchase, SavedPurchases } from './saved-purchases.ts';
import { capsLine, clientOptions, readSetCaps } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';
import { readTrust } from './stored-settings.ts';

const EXITS = {
  bought: EXIT.done,
  not_charged: EXIT.failed,
  lost: EXIT.failed,
  not_written: EXIT.failed,
  unknown: EXIT.unknownOutcome,
};

export const resumeCommand = defineCommand({
  usage: `speechgate resume [ID] [--out FILE]
Finds the outcome of a purchase whose response was lost, by repeating the identical request. It never pays twice. Paid
speech is written to its file. Without ID it resumes all saved purchases.
For operators: speechgate admin resume FLOW --reason TEXT resumes a paused flow.

  ID               as printed by the command that ended with exit code 5
  --out FILE       the audio file; default: the file of the original command
  --list           only lists the saved purchases${ALL_USAGE}`,
  example: 'speechgate resume',
  options: {
    ...ALL_OPTION,
    out: { type: 'string', short: 'o' },
    list: { type: 'boolean', default: false },
  },
  maxWords: 1,
  run: async ({ out, list, all }, { words: [identifier], output, host }) => {
    const folder = settingsFolder(host.env);
    await withBudget(folder, {}, async (budget) => {
      const caps = await readSetCaps(host.env);
      const saved = new SavedPurchases(folder);
      const allAudioIds = (await saved.listAudio()).map((audio) => audio.identifier);
      const audioIds = allAudioIds.filter((each) => identifier === undefined || each === identifier);
      const isAudioOnly = identifier !== undefined && audioIds.length > 0;
      const purchases = isAudioOnly ? [] : await findPurchases(saved, budget, identifier);
      if (!list) output.note(`${capsLine(caps)} The caps already count each purchase that is resumed.`);
      if (out !== undefined && purchases.length + audioIds.length > 1) {
        throw new UsageError(
          '--out names one file, but there are several purchases. Add the ID of one: speechgate resume --list shows them.',
        );
      }
      if (list) {
        const rows = purchases.map(({ pending }) => [pending.identifier, `${pending.kind}, ${pending.baseUrl}`]);
        const audioRows = audioIds.map((each) => [each, 'paid audio that was not written to its file']);
        const lines = rowsOf([...rows, ...audioRows], { all }, (row) => row);
        return output.done({ purchases: purchases.map(summaryOf), audio: audioIds }, lines);
      }
      const resumed: Resumed[] = [];
      for (const each of audioIds) resumed.push(await saved.moveAudio(each, out, host.stdout));
      for (const each of purchases) {
        const resuming = resumeIntoFile(each, { saved, budget, host, out }).catch((error) => {
          if (identifier !== undefined) throw error;
          return notWrittenError(each, error);
        });
        resumed.push(await output.withProgress(`Resuming ${each.pending.identifier}`, resuming));
      }
      if (identifier === undefined) {
        const resolveOutcome = async (pending: PendingPurchase) =>
          (await clientOf(host.env, pending)).resolveOutcome(pending);
        await budget.concludeLost({ resolveOutcome }, saved);
      }
      const documents = resumed.map(({ line, ...document }) => document);
      const lines = resumed.length > 0 ? resumed.map(({ line }) => line) : ['There are no purchases to resume.'];
      output.done({ purchases: documents }, lines);
      output.exitCode = Math.max(EXIT.done, ...resumed.map(({ outcome }) => EXITS[outcome])) as ExitCode;
    });
  },
});

async function findPurchases(
  purchases: SavedPurchases,
  budget: FileBudget,
  identifier: string | undefined,
): Promise<readonly SavedPurchase[]> {
  if (identifier !== undefined) {
    const one = await purchases.find(identifier);
    if (one) return [one];
    const found = await budget.find(identifier);
    if (found) return [{ pending: found.pending, out: null }];
    throw new UsageError(
      `ID ${identifier} is not a purchase that is saved on this machine. Run speechgate resume --list to see the saved ones.`,
    );
  }
  const saved = await purchases.list();
  const known = new Set(saved.map(({ pending }) => pending.identifier));
  const lost = (await budget.lost()).flatMap(({ pending }) =>
    pending && isRepeatable(pending) && !known.has(pending.identifier) ? [{ pending, out: null }] : [],
  );
  return [...saved, ...lost];
}

function summaryOf({ pending: { identifier, flow, kind, baseUrl, maxMicroUsd }, out }: SavedPurchase) {
  return { identifier, flow, kind, baseUrl, maxMicroUsd: Number(maxMicroUsd), out };
}

export interface Resumed {
  readonly outcome: 'bought' | 'not_charged' | 'lost' | 'not_written' | 'unknown';
  readonly identifier: string;
  readonly line: string;
  readonly [more: string]: unknown;
}

export interface BoughtSpeech {
  readonly bytes: number;
  readonly contentType: Speech['contentType'];
  readonly receipt: Receipt;
}

export function receiptLine({ bytes, receipt }: BoughtSpeech): string {
  const { flow, chargedMicroUsd, balanceMicroUsd, isReplay } = receipt;
  const left = balanceMicroUsd === null ? '' : `, ${formatUsd(balanceMicroUsd)} USD left`;
  const earlier = isReplay ? ' by an earlier request' : '';
  return `${bytes} bytes, ${formatUsd(chargedMicroUsd)} USD paid${earlier} (${flowWord(flow)})${left}`;
}

interface Resuming {
  readonly saved: SavedPurchases;
  readonly budget: FileBudget;
  readonly host: CommandProcess;
  readonly out: string | undefined;
}

async function clientOf(env: NodeJS.ProcessEnv, { baseUrl }: PendingPurchase): Promise<Speechgate> {
  return new Speechgate(await clientOptions(env, baseUrl, await readTrust(settingsFolder(env), baseUrl)));
}

async function resumeIntoFile(each: SavedPurchase, { saved, budget, host, out }: Resuming): Promise<Resumed> {
  if (out === undefined && (await saved.hasNewerFile(each)))
    throw new UsageError(
      `${each.out} was written after this purchase, so it is not replaced. Name another file with --out. Nothing was sent.`,
    );
  return resumePurchase(each, budget, host, out);
}

/** Settles the outcome in the budget, and deletes the purchase once its audio is in the file. */
export async function resumePurchase(
  saved: SavedPurchase,
  budget: FileBudget,
  { env, stdout }: CommandProcess,
  out?: string,
): Promise<Resumed> {
  const { pending } = saved;
  const { identifier } = pending;
  const client = await clientOf(env, pending);
  const settleAndDelete = async (chargedMicroUsd: bigint) => {
    await (await budget.find(identifier))?.reservation.settle(chargedMicroUsd);
    await new SavedPurchases(settingsFolder(env)).drop(identifier);
  };
  try {
    const { chargedMicroUsd, ...bought } =
      pending.kind === 'deposit' ? await finishDeposit(client, pending) : await writeSpeech(client, saved, out, stdout);
    await settleAndDelete(chargedMicroUsd);
    return { outcome: 'bought', identifier, ...bought };
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof OutcomeUnknownError) {
      return {
        outcome: 'unknown',
        identifier,
        line: `${identifier}: its outcome is still unknown, so you may have been charged. Run speechgate resume ${identifier} later.`,
      };
    }
    if (error instanceof AudioLostError) {
      await settleAndDelete(error.chargedMicroUsd ?? error.maxMicroUsd);
      return { outcome: 'lost', identifier, message, line: `${identifier}: ${message}` };
    }
    if (!(error instanceof ServiceError)) throw error;
    await settleAndDelete(0n);
    return { outcome: 'not_charged', identifier, message, line: `${identifier}: not charged. ${serviceSays(message)}` };
  }
}

/** The purchase stays saved if its file can't be written. @throws any other error */
function notWrittenError({ pending: { identifier } }: SavedPurchase, error: unknown): Resumed {
  if (!(error instanceof UsageError) && (error as NodeJS.ErrnoException).code === undefined) throw error;
  const { message } = error as Error;
  const resume = `speechgate resume ${identifier} --out FILE`;
  const line = `${identifier}: the audio was not written. ${message.replace(/\.$/, '')}. To get the audio without paying twice, run: ${resume}`;
  return { outcome: 'not_written', identifier, message, resume, line };
}

async function writeSpeech(
  client: Speechgate,
  { pending, out: planned }: SavedPurchase,
  out: string | undefined,
  stdout: OutputStream,
) {
  const path = out ?? planned ?? resolve(`${pending.identifier}.mp3`);
  const file = await openAudioFile(path, stdout, 'The purchase stays saved.');
  try {
    const speech = await client.resume(pending);
    const { contentType, receipt } = speech;
    const bytes = await file.write(speech);
    const line = `${path}: ${receiptLine({ bytes, contentType, receipt })}${otherFormat(path, contentType)}`;
    return { chargedMicroUsd: receipt.chargedMicroUsd, file: path, bytes, contentType, receipt, line };
  } finally {
    await file.close();
  }
}

async function finishDeposit(client: Speechgate, pending: PendingPurchase) {
  const deposit = await client.resumeDeposit(pending);
  const line = `${pending.identifier}: deposited; the prepaid balance is ${formatUsd(deposit.balanceMicroUsd)} USD`;
  return { chargedMicroUsd: BigInt(pending.maxMicroUsd), deposit, line };
}
