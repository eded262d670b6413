import { UsageError } from '../../lib/usage-error.ts';
import type { FileBudget } from '../budget/file-budget.ts';
import { isRepeatable, type PendingPurchase } from '../client/pending-purchase.ts';
import { defineCommand } from './command.ts';
import { EXIT, type ExitCode } from './failure.ts';
import { withBudget } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './output.ts';
import { clientOf, notWrittenError, type Resumed, resumePurchase } from './resume-purchase.ts';
import { type SavedPurchase, SavedPurchases } from './saved-purchases.ts';
import { capsLine, readSetCaps } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';

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
For operators: speechgate admin resume FLOW --reason TEXT opens a paused flow again.

  ID               as printed by the command that ended with 5
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
      if (!list) output.note(`${capsLine(caps)} A purchase that is resumed is already counted.`);
      if (out !== undefined && purchases.length + audioIds.length > 1) {
        throw new UsageError('--out names one file, but there are several purchases. Add the ID of one.');
      }
      if (list) {
        const rows = purchases.map(({ pending }) => [pending.identifier, `${pending.kind}, ${pending.baseUrl}`]);
        const audioRows = audioIds.map((each) => [each, 'saved audio that was not written to a file']);
        const lines = rowsOf([...rows, ...audioRows], { all }, (row) => row);
        return output.done({ purchases: purchases.map(summaryOf), audio: audioIds }, lines);
      }
      const resumed: Resumed[] = [];
      for (const each of audioIds) resumed.push(await saved.moveAudio(each, out, host.stdout));
      for (const each of purchases) {
        const resuming = resumePurchase(each, budget, host, out).catch((error) => {
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
      `ID: no purchase ${identifier} is saved here. Run speechgate resume --list to see the saved ones.`,
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
