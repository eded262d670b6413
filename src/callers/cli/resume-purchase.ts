import { resolve } from 'node:path';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../../lib/usage-error.ts';
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
import { openAudioFile, otherFormat } from './audio-file.ts';
import { serviceSays } from './failure.ts';
import type { CommandProcess, OutputStream } from './output.ts';
import { flowWord } from './read-values.ts';
import { type SavedPurchase, SavedPurchases } from './saved-purchases.ts';
import { clientOptions } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';
import { readTrust } from './stored-settings.ts';

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

export async function clientOf(env: NodeJS.ProcessEnv, { baseUrl }: PendingPurchase): Promise<Speechgate> {
  return new Speechgate(await clientOptions(env, baseUrl, await readTrust(settingsFolder(env), baseUrl)));
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
        line: `${identifier}: unknown outcome. Run speechgate resume ${identifier} later.`,
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
export function notWrittenError({ pending: { identifier } }: SavedPurchase, error: unknown): Resumed {
  if (!(error instanceof UsageError) && (error as NodeJS.ErrnoException).code === undefined) throw error;
  const { message } = error as Error;
  const resume = `speechgate resume ${identifier} --out FILE`;
  const line = `${identifier}: not written. ${message.replace(/\.$/, '')}. Get it with: ${resume}`;
  return { outcome: 'not_written', identifier, message, resume, line };
}

async function writeSpeech(
  client: Speechgate,
  { pending, out: planned }: SavedPurchase,
  out: string | undefined,
  stdout: OutputStream,
) {
  const path = out ?? planned ?? resolve(`${pending.identifier}.mp3`);
  const file = await openAudioFile(path, stdout);
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
  const line = `${pending.identifier}: deposited, ${formatUsd(deposit.balanceMicroUsd)} USD on the balance`;
  return { chargedMicroUsd: BigInt(pending.maxMicroUsd), deposit, line };
}
