import { resolve } from 'node:path';
import { AudioLostError, OutcomeUnknownError, SpeechgateError } from '../../client/errors.ts';
import { type Flow, isRepeatable, type PendingPurchase } from '../../client/pending-purchase.ts';
import type { Receipt, SpeechOrder } from '../../client/speech.ts';
import { openAudioFile } from './audio-file.ts';
import { assertCanPay, paid } from './can-pay.ts';
import { capsLine } from './caps.ts';
import { EXIT } from './exit-codes.ts';
import { CommandError } from './failure.ts';
import { interruption } from './interrupt.ts';
import { KeptPurchases, keptSpeech, type Watcher } from './kept-purchases.ts';
import { openCaller } from './open-caller.ts';
import type { Output } from './output.ts';
import { withProgress } from './progress.ts';

export interface SpeechPurchase {
  readonly order: SpeechOrder;
  /** Where the audio goes. */
  readonly path: string;
  /** Whether a file of that path means something once this command has ended. */
  readonly isLasting: boolean;
  readonly pay: Flow | undefined;
  readonly maxMicroUsd: bigint | undefined;
  readonly durable: boolean;
  readonly output: Output;
}

/** What was bought. */
export interface BoughtSpeech {
  readonly bytes: number;
  readonly contentType: string;
  readonly receipt: Receipt;
}

/**
 * Buys speech into a file. What has left is kept until its end is known and the audio is there.
 * @throws OutcomeUnknownError of a purchase that is kept
 */
export async function buySpeech(purchase: SpeechPurchase): Promise<BoughtSpeech> {
  const { order, path, isLasting, pay, maxMicroUsd, durable, output } = purchase;
  /** What has left and may have been charged, if it can be asked for again. */
  let left: PendingPurchase | undefined;
  const drop = async () => {
    if (left) await kept.drop(left.identifier);
    left = undefined;
  };
  const watcher: Watcher = {
    onPending: async (pending) => {
      if (!isRepeatable(pending)) return;
      left = pending;
      await kept.keep({ pending, out: isLasting ? resolve(path) : null });
    },
    onNotCharged: drop,
  };
  const caller = await openCaller({ pay, maxMicroUsd, watcher });
  const kept = new KeptPurchases(caller.settings.folder);
  assertCanPay(caller);
  output.note(capsLine(caller.caps));
  // What earlier commands have left open need not be held back any longer; what can't be told stays so.
  await caller.budget.concludeLost(caller.client, keptSpeech(caller.settings.folder)).catch(() => {});
  const file = await openAudioFile(path);
  const signal = interruption();
  /** Known as soon as it was paid: the audio is still on its way then. */
  let receipt: Receipt | undefined;
  const speak = async (): Promise<BoughtSpeech> => {
    const speech = await paid(caller, caller.client.speak(order, { signal, durable }));
    receipt = speech.receipt;
    const bytes = await file.write(speech.audio);
    return { bytes, contentType: speech.contentType, receipt };
  };
  try {
    const bought = await withProgress('Speaking', output.isJson, speak());
    await drop();
    return bought;
  } catch (error) {
    if (error instanceof OutcomeUnknownError) throw error;
    if (error instanceof SpeechgateError || error instanceof CommandError) {
      await drop();
      throw error;
    }
    if (left) throw signal.aborted ? new OutcomeUnknownError(left, { cause: error }) : notWritten(left, error);
    if (receipt) throw lost(receipt, error);
    throw signal.aborted ? nothingBought() : error;
  } finally {
    await file.close();
  }
}

const notWritten = ({ identifier }: PendingPurchase, error: unknown): CommandError => {
  const resume = `speechgate resume ${identifier} --out FILE`;
  const message = `The audio could not be written: ${(error as Error).message}. It was paid; ask for it again with: ${resume}`;
  return new CommandError({ code: 'NOT_WRITTEN', exit: EXIT.failed, message, identifier, resume });
};

const lost = ({ chargedMicroUsd }: Receipt, cause: unknown): AudioLostError => {
  const wayOut = 'It was paid, and only with --durable it could be asked for again.';
  const message = `The audio could not be written: ${(cause as Error).message}. ${wayOut}`;
  return new AudioLostError(message, { chargedMicroUsd, maxMicroUsd: chargedMicroUsd }, { cause });
};

const nothingBought = (): CommandError =>
  new CommandError({ code: 'INTERRUPTED', exit: EXIT.interrupted, message: 'Interrupted. Nothing was bought.' });
