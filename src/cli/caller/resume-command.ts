import { join } from 'node:path';
import { type FileBudget, openFileBudget } from '../../budget/file-budget.ts';
import { isRepeatable, type PendingPurchase } from '../../client/pending-purchase.ts';
import { UsageError } from '../usage-error.ts';
import { capsLine } from './caps.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { EXIT } from './exit-codes.ts';
import { KeptAudio } from './kept-audio.ts';
import { type KeptPurchase, KeptPurchases, keptSpeech } from './kept-purchases.ts';
import { BUDGET_FILE } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { clientOf, notWritten, type Resumed, resumePurchase } from './resume-purchase.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './rows.ts';
import { readSetCaps } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';

const EXITS = {
  bought: EXIT.done,
  not_charged: EXIT.failed,
  lost: EXIT.failed,
  not_written: EXIT.failed,
  unknown: EXIT.unknownOutcome,
};

/** `speechgate resume [ID]` */
await runCommand({
  usage: `speechgate resume [ID] [--out FILE]
Asks how a purchase ended whose answer was lost, by its identical request: it is never paid twice. Speech that was paid
for is written to its file. Without ID it asks for all that are kept.
For operators: speechgate resume FLOW --reason TEXT opens a paused flow again.

  ID               as the command has told that ended with 5
  --out FILE       where the audio goes; otherwise where it was to go at first
  --list           only lists what is kept${ALL_USAGE}`,
  example: 'speechgate resume',
  options: {
    ...COMMON_OPTIONS,
    ...ALL_OPTION,
    out: { type: 'string', short: 'o' },
    list: { type: 'boolean', default: false },
  },
  maxWords: 1,
  run: async ({ out, list, all: isWhole }, [identifier], output) => {
    const folder = settingsFolder(process.env);
    const budget = await openFileBudget(join(folder, BUDGET_FILE), {});
    const caps = await readSetCaps(process.env);
    const audio = new KeptAudio(folder);
    const audioIds = (await audio.list()).filter((each) => identifier === undefined || each === identifier);
    const purchases =
      identifier === undefined
        ? await all(folder, budget)
        : audioIds.length > 0
          ? []
          : [await one(folder, budget, identifier)];
    if (!list) output.note(`${capsLine(caps)} What is resumed was set aside under them.`);
    if (out !== undefined && purchases.length + audioIds.length > 1) {
      throw new UsageError('--out names one file, and there are several purchases. Name the ID of one.');
    }
    if (list) {
      const kept = purchases.map(({ pending }) => [pending.identifier, `${pending.kind}, ${pending.baseUrl}`]);
      const audioRows = audioIds.map((each) => [each, 'audio that is here and was written to no file']);
      const lines = rowsOf([...kept, ...audioRows], { all: isWhole }, (row) => row);
      return output.done({ purchases: purchases.map(listed), audio: audioIds }, lines);
    }
    const resumed: Resumed[] = [];
    for (const each of audioIds) resumed.push(await audio.writeTo(out, each));
    for (const kept of purchases) {
      const asking = resumePurchase(kept, { folder, budget, out }).catch((error) => {
        if (identifier !== undefined) throw error;
        return notWritten(kept, error);
      });
      resumed.push(await withProgress(`Asking about ${kept.pending.identifier}`, output.isJson, asking));
    }
    if (identifier === undefined) {
      const conclude = async (pending: PendingPurchase) => (await clientOf(folder, pending)).conclude(pending);
      await budget.concludeLost({ conclude }, keptSpeech(folder));
    }
    const documents = resumed.map(({ line, ...document }) => document);
    const lines = resumed.length > 0 ? resumed.map(({ line }) => line) : ['No purchase waits for its end.'];
    output.done({ purchases: documents }, lines);
    process.exitCode = Math.max(EXIT.done, ...resumed.map(({ outcome }) => EXITS[outcome]));
  },
});

/** Those of commands that ended before they knew, and of other processes that were killed. */
async function all(folder: string, budget: FileBudget): Promise<readonly KeptPurchase[]> {
  const kept = await new KeptPurchases(folder).list();
  const known = new Set(kept.map(({ pending }) => pending.identifier));
  const lost = (await budget.lost()).flatMap(({ pending }) =>
    pending && isRepeatable(pending) && !known.has(pending.identifier) ? [{ pending, out: null }] : [],
  );
  return [...kept, ...lost];
}

async function one(folder: string, budget: FileBudget, identifier: string): Promise<KeptPurchase> {
  const kept = await new KeptPurchases(folder).find(identifier);
  if (kept) return kept;
  const found = await budget.find(identifier);
  if (found) return { pending: found.pending, out: null };
  throw new UsageError(`No purchase ${identifier} is kept here. speechgate resume --list shows those that are.`);
}

function listed({ pending: { identifier, flow, kind, baseUrl, maxMicroUsd }, out }: KeptPurchase) {
  return { identifier, flow, kind, baseUrl, maxMicroUsd: Number(maxMicroUsd), out };
}
