import { resolve } from 'node:path';
import type { FileBudget } from '../../budget/file-budget.ts';
import { AudioLostError, OutcomeUnknownError, ServiceError, Speechgate } from '../../client/index.ts';
import type { PendingPurchase } from '../../client/pending-purchase.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';
import { openAudioFile } from './audio-file.ts';
import { serviceSays } from './failure.ts';
import { followedTrust } from './followed-trust.ts';
import { insecureHttp } from './insecure-http.ts';
import { type KeptPurchase, KeptPurchases } from './kept-purchases.ts';
import { receiptLine } from './receipt-line.ts';
import { readTrust } from './stored-settings.ts';

/** How a purchase ended, as a document and as a line for people. */
export interface Resumed {
  readonly outcome: 'bought' | 'not_charged' | 'lost' | 'not_written' | 'unknown';
  readonly identifier: string;
  readonly line: string;
  readonly [more: string]: unknown;
}

/** A client that can ask about purchases of this service. */
export const clientOf = async (folder: string, { baseUrl }: PendingPurchase): Promise<Speechgate> =>
  new Speechgate({
    baseUrl,
    ...(await insecureHttp(folder, baseUrl)),
    ...(await followedTrust(folder, baseUrl, await readTrust(folder, baseUrl))),
  });

/** Asks how it ended, settles that in the budget, and forgets it once the end is known and the audio is in its file. */
export async function resumePurchase(
  kept: KeptPurchase,
  { folder, budget, out }: { readonly folder: string; readonly budget: FileBudget; readonly out: string | undefined },
): Promise<Resumed> {
  const { pending } = kept;
  const { identifier } = pending;
  const client = await clientOf(folder, pending);
  const settle = async (chargedMicroUsd: bigint) => {
    await (await budget.find(identifier))?.reservation.settle(chargedMicroUsd);
  };
  const forget = () => new KeptPurchases(folder).drop(identifier);
  try {
    const { chargedMicroUsd, ...bought } =
      pending.kind === 'deposit' ? await deposited(client, pending) : await spoken(client, kept, out);
    await settle(chargedMicroUsd);
    await forget();
    return { outcome: 'bought', identifier, ...bought };
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof OutcomeUnknownError) {
      return { outcome: 'unknown', identifier, line: `${identifier}: not known yet; ask again later.` };
    }
    if (error instanceof AudioLostError) {
      await settle(error.chargedMicroUsd ?? error.maxMicroUsd);
      await forget();
      return { outcome: 'lost', identifier, message, line: `${identifier}: ${message}` };
    }
    if (!(error instanceof ServiceError)) throw error;
    await settle(0n);
    await forget();
    return { outcome: 'not_charged', identifier, message, line: `${identifier}: not charged. ${serviceSays(message)}` };
  }
}

/**
 * How one of several ended whose file can't be written: it stays kept, and the others are asked for.
 * @throws the error itself when it is another one
 */
export function notWritten({ pending: { identifier } }: KeptPurchase, error: unknown): Resumed {
  if (!(error instanceof UsageError) && (error as NodeJS.ErrnoException).code === undefined) throw error;
  const { message } = error as Error;
  const resume = `speechgate resume ${identifier} --out FILE`;
  const line = `${identifier}: not written. ${message.replace(/\.$/, '')}. Ask for it again with: ${resume}`;
  return { outcome: 'not_written', identifier, message, resume, line };
}

async function spoken(client: Speechgate, { pending, out: planned }: KeptPurchase, given: string | undefined) {
  const path = given ?? planned ?? resolve(`${pending.identifier}.mp3`);
  const file = await openAudioFile(path);
  try {
    const { audio, contentType, receipt } = await client.resume(pending);
    const bytes = await file.write(audio);
    const line = `${path}: ${receiptLine({ bytes, contentType, receipt })}`;
    return { chargedMicroUsd: receipt.chargedMicroUsd, file: path, bytes, contentType, receipt, line };
  } finally {
    await file.close();
  }
}

async function deposited(client: Speechgate, pending: PendingPurchase) {
  const deposit = await client.resumeDeposit(pending);
  const line = `${pending.identifier}: deposited, ${formatUsd(deposit.balanceMicroUsd)} USD on the balance`;
  return { chargedMicroUsd: BigInt(pending.maxMicroUsd), deposit, line };
}
