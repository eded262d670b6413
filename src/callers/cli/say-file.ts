import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { extname, join, resolve } from 'node:path';
import { UsageError } from '../../lib/arguments.ts';
import { type Chapter, type Cleaning, chaptersOf } from '../../lib/clean-text.ts';
import { counted } from '../../lib/counted.ts';
import { FileLock } from '../../lib/file-lock.ts';
import { formatUsd } from '../../lib/money.ts';
import { ownFolder } from '../../lib/private-files.ts';
import { detectAudioType } from '../../speech/audio-format.ts';
import { hasWord, splitText } from '../../speech/split-text.ts';
import { priceOf } from '../client/catalog.ts';
import { type Flow, OutcomeUnknownError, OverCapError, type Speechgate, type SpeechOrder } from '../client/index.ts';
import { openAudioFile } from './audio-file.ts';
import { type BookFiles, pathsOf, writeBook } from './book-files.ts';
import { readEpub } from './epub.ts';
import { CommandError, EXIT } from './failure.ts';
import { assertCanPay, withBudget, withCaller } from './open-caller.ts';
import type { CommandProcess, Output } from './output.ts';
import { type CleaningValues, idsOf, readCleaning } from './read-values.ts';
import { type BoughtSpeech, resumePurchase } from './resume-command.ts';
import { SavedPurchases } from './saved-purchases.ts';
import { capsLine } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';

/** Short enough to show progress, and to lose little if the audio of one is lost. */
const MAX_PART_CHARACTERS = 2_000;
const FORMATS: Readonly<Record<string, Cleaning['format']>> = {
  '.txt': 'off',
  '.md': 'markdown',
  '.markdown': 'markdown',
  '.html': 'html',
  '.htm': 'html',
  // Its words are read without markup.
  '.epub': 'off',
};
const PLACE_CHARACTERS = 40;
const FIRST_WORDS = /^.{1,60}(?!\S)/;
const NOTHING_BOUGHT = 'Nothing was bought.';

/** The chapters that have words, of the file that a word names; undefined if it is a text. @throws UsageError */
export async function readTextFile(word: string, values: CleaningValues): Promise<Chapter[] | undefined> {
  const format = FORMATS[extname(word).toLowerCase()];
  if (format === undefined || word.includes('\n')) return undefined;
  const cleaning = readCleaning({ ...values, clean: values.clean ?? format });
  const bytes = await readFile(word).catch((error) => {
    if (error.code === 'ENOENT' && word.includes(' ')) return undefined;
    const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${error.code})`;
    throw new UsageError(`${word} ${reason}. Name a text file, or pipe the text in and pass -. ${NOTHING_BOUGHT}`);
  });
  if (bytes === undefined) return undefined;
  const chapters = /\.epub$/i.test(word)
    ? await readEpub(word, bytes, cleaning.emoji)
    : chaptersOf(decodeText(word, bytes), cleaning);
  return chapters
    .filter(({ text }) => hasWord(text))
    .map(({ title, text }) => ({ title: title || (FIRST_WORDS.exec(text)?.[0] ?? ''), text }));
}

function decodeText(word: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new UsageError(`${word} is not UTF-8 text. Convert it to UTF-8 first. ${NOTHING_BOUGHT}`);
  }
}

/** What an order costs by the catalog, and how long its text may be. */
export async function readTerms(client: Speechgate, order: SpeechOrder) {
  const { models, defaultModel } = await client.models();
  const { model = defaultModel, ...named } = await idsOf(order, client);
  const found = models.find(({ id }) => id === model);
  if (!found) {
    throw new UsageError(`The model ${model} does not exist. speechgate models lists the models. ${NOTHING_BOUGHT}`);
  }
  const ratePicoUsd = BigInt(Math.round(found.pricing.ratePerCharUsd * 1e12));
  return {
    order: { ...order, ...named, model },
    maxCharacters: found.maxInputCharacters,
    priceOf: (text: string) => priceOf(text, ratePicoUsd),
  };
}

/** The parts that have words. @throws UsageError */
function splitChapter(text: string, maxCharacters: number): string[] {
  const split = splitText(text, maxCharacters);
  if (split.outcome === 'split') return split.parts.filter(hasWord).map((part) => part.trim());
  const place = text.slice(split.offset, split.offset + PLACE_CHARACTERS);
  throw new UsageError(
    `The text has no space in the ${maxCharacters} characters that begin with "${place}". Put a space or a line break there. ${NOTHING_BOUGHT}`,
  );
}

interface Part {
  readonly order: SpeechOrder;
  readonly priceMicroUsd: bigint;
  readonly path: string;
}

/** Buys a part and writes its audio to its path. */
export type BuyPart = (part: Part, progress: string) => Promise<BoughtSpeech>;

interface FileOptions {
  readonly files: BookFiles;
  readonly pay: Flow | undefined;
  /** For all that is to be bought. */
  readonly maxMicroUsd: bigint | undefined;
  readonly buy: BuyPart;
  readonly signal: AbortSignal;
  readonly output: Output;
  readonly host: CommandProcess;
}

export interface SpokenFile {
  readonly paths: readonly string[];
  readonly parts: number;
  readonly bytes: number;
  readonly chargedMicroUsd: bigint;
}

/**
 * Speaks chapters part by part. Each is kept beside the file until all are joined, so that the same command goes on
 * after an interruption:
 *
 *     its audio is there          -> nothing
 *     it was sent, audio unknown  -> the identical request again, which is charged once
 *     else                        -> bought
 */
export async function sayFile(
  chapters: readonly Chapter[],
  order: SpeechOrder,
  options: FileOptions,
): Promise<SpokenFile> {
  const { files, pay, maxMicroUsd, output, host } = options;
  const paths = pathsOf(files, chapters.length);
  for (const path of paths) await (await openAudioFile(path, host.stdout, NOTHING_BOUGHT)).close();
  const folder = `${resolve(files.out)}.parts`;
  const spoken = await withCaller(host, { pay }, async (caller) => {
    assertCanPay(caller);
    const terms = await readTerms(caller.client, order);
    const spokenBefore = new Map<string, number>();
    const partOf = (text: string): Part => {
      const part = { ...terms.order, text };
      const name = nameOf(part);
      const repetition = spokenBefore.get(name) ?? 0;
      spokenBefore.set(name, repetition + 1);
      return { order: part, priceMicroUsd: terms.priceOf(text), path: join(folder, `${name}-${repetition}.mp3`) };
    };
    const most = Math.min(terms.maxCharacters, MAX_PART_CHARACTERS);
    const split = chapters.map(({ title, text }) => ({ title, parts: splitChapter(text, most).map(partOf) }));
    output.note(capsLine(caller.caps));
    return split;
  });
  const parts = spoken.flatMap((chapter) => chapter.parts);
  const missing: Part[] = [];
  for (const part of parts) if (!(await isBought(part.path))) missing.push(part);
  const wantedMicroUsd = missing.reduce((sum, { priceMicroUsd }) => sum + priceMicroUsd, 0n);
  if (maxMicroUsd !== undefined && wantedMicroUsd > maxMicroUsd) {
    throw new OverCapError({ scope: 'call', limitMicroUsd: maxMicroUsd, leftMicroUsd: maxMicroUsd, wantedMicroUsd });
  }
  output.note(
    `The text has ${counted(parts.length, 'part')}. Not bought yet: ${missing.length}, for ${formatUsd(wantedMicroUsd)} USD.`,
  );
  const chargedMicroUsd = await onlyHere(folder, () => buyParts(missing, parts.length, options));
  const bytes = await writeBook(spoken, files, host.stdout);
  await forget(parts, host);
  await rm(folder, { recursive: true });
  return { paths, parts: parts.length, bytes, chargedMicroUsd };
}

/** Two commands would buy the same parts. @throws ForeignFileError, CommandError */
async function onlyHere<T>(folder: string, work: () => Promise<T>): Promise<T> {
  const lock = await FileLock.open(join(await ownFolder(folder), 'lock'));
  try {
    if (lock.tryAcquire()) return await work();
    const message = `Another speechgate say is using the folder ${folder}. Wait until it ends, or stop it, then retry. Nothing was bought.`;
    throw new CommandError({ code: 'FILE_BUSY', exit: EXIT.failed, message });
  } finally {
    await lock.close();
  }
}

/** Returns the charge of all. */
async function buyParts(missing: readonly Part[], count: number, options: FileOptions): Promise<bigint> {
  const { signal, output } = options;
  const lengths = missing.map(({ order }) => order.text.length);
  const begunAt = performance.now();
  let chargedMicroUsd = 0n;
  for (const [index, part] of missing.entries()) {
    const bought = count - missing.length + index;
    const paid = formatUsd(chargedMicroUsd);
    const left = timeLeft(
      (performance.now() - begunAt) / 1000,
      sum(lengths.slice(0, index)),
      sum(lengths.slice(index)),
    );
    try {
      signal.throwIfAborted();
      chargedMicroUsd += await buyPart(part, `Part ${bought + 1} of ${count}, ${left}${paid} USD paid`, options);
    } catch (error) {
      const kept = `Bought: ${bought} of ${counted(count, 'part')}, for ${paid} USD in this run. To continue, run the same command again: it pays for no part twice.`;
      if (signal.aborted) throw interrupted(kept, error);
      output.note(kept);
      throw error;
    }
  }
  return chargedMicroUsd;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

const timeLeft = (seconds: number, characters: number, charactersLeft: number): string =>
  characters === 0 ? '' : `about ${Math.ceil((seconds / characters) * charactersLeft)} s left, `;

/** A part whose command was killed right after it was written is still saved. */
async function forget(parts: readonly Part[], { env }: CommandProcess): Promise<void> {
  const purchases = new SavedPurchases(settingsFolder(env));
  const paths = new Set(parts.map(({ path }) => path));
  for (const { pending, out } of await purchases.list()) {
    if (out !== null && paths.has(out)) await purchases.drop(pending.identifier);
  }
}

/** Of its words, so that what is bought stays so when the text around it changes. */
function nameOf(order: SpeechOrder): string {
  const { text, model, voice, speed } = order;
  const hash = createHash('sha256').update(JSON.stringify([text, model, voice, speed]));
  return hash.digest('hex').slice(0, 32);
}

/** @throws CommandError for WAV: all parts would be, and no more is paid for */
async function isBought(path: string): Promise<boolean> {
  const audio = await readFile(path).catch(() => undefined);
  if (audio && detectAudioType(audio) === 'audio/wav') throw notMp3(path, NOTHING_BOUGHT);
  return audio !== undefined;
}

function notMp3(path: string, paid: string): CommandError {
  const message = `The service returned WAV in ${path}, but only MP3 parts can be joined. Choose another model. ${paid}`;
  return new CommandError({ code: 'NOT_MP3', exit: EXIT.failed, message });
}

function interrupted(kept: string, error: unknown): CommandError {
  const isUnknown = error instanceof OutcomeUnknownError;
  const [code, exit] = isUnknown
    ? (['OUTCOME_UNKNOWN', EXIT.unknownOutcome] as const)
    : (['INTERRUPTED', EXIT.interrupted] as const);
  const more = isUnknown ? ' You may have been charged for the next part.' : '';
  return new CommandError({ code, exit, message: `Interrupted: ${kept}${more}` });
}

/** Returns the charge. */
async function buyPart(part: Part, progress: string, { buy, output, host }: FileOptions): Promise<bigint> {
  const { path } = part;
  const folder = settingsFolder(host.env);
  const purchases = new SavedPurchases(folder);
  const earlier = (await purchases.list()).find((saved) => saved.out === path);
  if (earlier) {
    const resuming = withBudget(folder, {}, (budget) => resumePurchase(earlier, budget, host));
    const { outcome, line, receipt } = await output.withProgress(progress, resuming);
    if (outcome === 'bought') return (receipt as BoughtSpeech['receipt']).chargedMicroUsd;
    if (outcome === 'unknown')
      throw new CommandError({ code: 'OUTCOME_UNKNOWN', exit: EXIT.unknownOutcome, message: line });
    if (outcome === 'lost') throw new CommandError({ code: 'AUDIO_LOST', exit: EXIT.failed, message: line });
  }
  const { receipt, contentType } = await buy(part, progress);
  if (contentType === 'audio/mpeg') return receipt.chargedMicroUsd;
  throw notMp3(path, `You paid ${formatUsd(receipt.chargedMicroUsd)} USD.`);
}
