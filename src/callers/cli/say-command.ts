import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { readUsd, UsageError } from '../../lib/arguments.ts';
import type { Chapter } from '../../lib/clean-text.ts';
import { counted } from '../../lib/counted.ts';
import { formatUsd } from '../../lib/money.ts';
import { childEnv, findProgram } from '../../lib/programs.ts';
import { serviceWords } from '../../lib/service-words.ts';
import {
  AudioLostError,
  OutcomeUnknownError,
  type PendingPurchase,
  type Receipt,
  SpeechgateError,
  type SpeechOrder,
} from '../client/index.ts';
import { openAudioFile, otherFormat } from './audio-file.ts';
import { CHAPTER_MODES, type ChapterMode } from './book-files.ts';
import { defineCommand, interruption } from './command.ts';
import { CommandError, EXIT } from './failure.ts';
import { assertCanPay, type Caller, paid, withCaller } from './open-caller.ts';
import type { CommandProcess, Output } from './output.ts';
import { idsOf, orderOf, readFlow, readOrder, SPEECH_OPTIONS, SPEECH_USAGE } from './read-values.ts';
import { type BoughtSpeech, receiptLine } from './resume-command.ts';
import { SavedPurchases, SentPurchase } from './saved-purchases.ts';
import { type BuyPart, readTerms, readTextFile, sayFile } from './say-file.ts';
import { capsLine } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';

const OPTIONS = {
  ...SPEECH_OPTIONS,
  out: { type: 'string', short: 'o' },
  play: { type: 'boolean', default: false },
  pay: { type: 'string' },
  max: { type: 'string' },
  durable: { type: 'boolean', default: false },
  chapters: { type: 'string' },
  captions: { type: 'boolean', default: false },
  'dry-run': { type: 'boolean', default: false },
} as const;

export const sayCommand = defineCommand({
  usage: `speechgate say TEXT|- --out FILE
Speaks a text, pays for it, and writes the audio, usually MP3.
A TEXT that ends in .txt, .md, .html or .epub names a file. It is spoken in parts, and its ending sets --clean.
After Ctrl-C, run the same command again: it continues, and pays for no part twice. The chapters are those of the table of
contents of an EPUB; in any other file, each heading begins a chapter.
${SPEECH_USAGE}
  --out FILE       the audio file, written completely or not at all; - writes to standard output
  --play           plays the audio with a player of this system
  --pay FLOW       card, x402 or prepaid; default: as set by speechgate connect
  --max USD        maximum price, such as 0.01, of a file with all its parts; at a higher price nothing is bought
  --dry-run        only prints what would be spoken, and its price
  --chapters MODE  for a file: "tags" marks the chapters in one MP3, "files" writes one MP3 per chapter, such as book-01.mp3; default: tags
  --captions       for a file: writes captions beside each MP3, such as book.vtt
  --durable        card credit only: uses a job, whose audio can be fetched again after a lost response`,
  example: 'speechgate say "Hello world" --out hello.mp3 --play',
  options: OPTIONS,
  maxWords: 1,
  run: async (values, { words: [word], output, host }) => {
    const { out, max } = values;
    if (out === undefined && !values.play && !values['dry-run']) {
      throw new UsageError(
        '--out is missing. Name a file, or - for standard output, or use --play. Nothing was bought.',
      );
    }
    if (out === '-' && (values.json || values.play)) {
      throw new UsageError(
        `--out - conflicts with ${values.json ? '--json' : '--play'}. Name a file. Nothing was bought.`,
      );
    }
    const pay = values.pay === undefined ? undefined : readFlow(values.pay, '--pay');
    const maxMicroUsd = max === undefined ? undefined : readUsd(max, '--max');
    const chapters = word === undefined ? undefined : await readTextFile(word, values);
    const mode = readChapters(values.chapters);
    if (!chapters && (values.captions || values.chapters !== undefined)) {
      throw new UsageError('--chapters and --captions need a text file, such as book.md. Nothing was bought.');
    }
    if (chapters && (out === undefined || out === '-') && !values['dry-run']) {
      throw new UsageError(`--out must name a file for the audio of ${word}. Nothing was bought.`);
    }
    const order = chapters
      ? orderOf(chapters.map(({ text }) => text).join('\n'), values)
      : await readOrder(values, word, host.stdin);
    if (values['dry-run']) return withCaller(host, { pay }, (caller) => showOrder(caller, order, output, chapters));
    const player = values.play ? await findPlayer(host.env) : undefined;
    const folder = out === undefined ? await mkdtemp(join(tmpdir(), 'speechgate-')) : undefined;
    const path = out ?? join(folder as string, 'speech');
    let played = [path];
    const signal = interruption(host);
    try {
      const saved = new SavedPurchases(settingsFolder(host.env));
      const shared = { signal, output, host };
      if (chapters) {
        const buy: BuyPart = ({ order, path, priceMicroUsd }, progress) => {
          const sent = new SentPurchase(saved, path);
          const delivery = { path, sent, durable: true, progress, ...shared };
          const options = { pay, maxMicroUsd: priceMicroUsd, sent };
          return withCaller(host, options, (caller) => buySpeech(caller, order, delivery));
        };
        const files = { out: path, chapters: mode, captions: values.captions };
        const spoken = await sayFile(chapters, order, { files, pay, maxMicroUsd, buy, ...shared });
        const { paths, parts, bytes, chargedMicroUsd } = spoken;
        played = [...paths];
        const names = paths.length === 1 ? paths[0] : `${paths[0]} to ${paths.at(-1)}`;
        const line = `${names}: ${counted(parts, 'part')}, ${bytes} bytes, ${formatUsd(chargedMicroUsd)} USD paid now`;
        const written = mode === 'tags' ? { file: path } : { files: paths };
        output.done({ ...written, parts, bytes, chargedMicroUsd }, [line]);
      } else {
        const sent = new SentPurchase(saved, out === undefined || out === '-' ? null : resolve(out));
        const delivery = { path, sent, durable: values.durable, ...shared };
        const options = { pay, maxMicroUsd, sent };
        const bought = await withCaller(host, options, (caller) => buySpeech(caller, order, delivery));
        const line = `${out ?? 'Speech'}: ${receiptLine(bought)}${otherFormat(out ?? '', bought.contentType)}`;
        if (out === '-') output.note(line);
        else output.done({ file: out ?? null, ...bought }, [line]);
      }
      for (const each of player ? played : []) {
        if (await play(player as Player, each, host.env)) continue;
        const remedy =
          out === undefined ? 'The audio is lost; next time, use --out.' : `Play ${each} with another program.`;
        output.note(`The player ${player?.[0]} failed to play the audio, for which you were charged. ${remedy}`);
      }
    } finally {
      if (folder) await rm(folder, { recursive: true, force: true });
    }
  },
});

function readChapters(text: string = CHAPTER_MODES[0]): ChapterMode {
  const mode = CHAPTER_MODES.find((each) => each === text);
  if (mode) return mode;
  throw new UsageError(`--chapters must be one of ${CHAPTER_MODES.join(', ')}, not ${text}. Nothing was bought.`);
}

async function showOrder(
  { client }: Caller,
  order: SpeechOrder,
  output: Output,
  chapters: readonly Chapter[] = [],
): Promise<void> {
  const terms = await readTerms(client, order);
  const { model } = terms.order;
  const text = order.text.trim();
  const priceMicroUsd = terms.priceOf(text);
  const price = `${counted(text.length, 'character')} with ${serviceWords(model)}: ${formatUsd(priceMicroUsd)} USD.`;
  const titles = chapters.map(({ title }) => title);
  const list = titles.length > 1 ? [`${titles.length} chapters: ${titles.join(', ')}`] : [];
  const lines = [...text.split('\n'), '', ...list, `${price} Nothing was bought.`];
  const document = { text, model, characters: text.length, priceMicroUsd };
  output.done(titles.length > 0 ? { ...document, chapters: titles } : document, lines);
}

interface Delivery {
  readonly path: string;
  readonly sent: SentPurchase;
  readonly durable: boolean;
  /** Of a file, for a part of it. */
  readonly progress?: string;
  readonly signal: AbortSignal;
  readonly output: Output;
  readonly host: CommandProcess;
}

async function buySpeech(
  caller: Caller,
  order: SpeechOrder,
  { path, sent, durable, progress, signal, output, host }: Delivery,
): Promise<BoughtSpeech> {
  const { client, budget, saved } = caller;
  assertCanPay(caller);
  const named = { ...order, ...(await idsOf(order, client)) };
  if (progress === undefined) output.note(capsLine(caller.caps));
  // Releases reservations of earlier commands. A failure is retried by the next command.
  await budget.concludeLost(client, saved).catch(() => {});
  const file = await openAudioFile(path, host.stdout, 'Nothing was bought.');
  let receipt: Receipt | undefined;
  const speak = async (): Promise<BoughtSpeech> => {
    const speech = await paid(client.speak(named, { signal, durable }), caller.settings);
    receipt = speech.receipt;
    const bytes = await file.write(speech);
    return { bytes, contentType: speech.contentType, receipt };
  };
  try {
    const bought = await output.withProgress(progress ?? 'Synthesizing', speak());
    await sent.drop();
    return bought;
  } catch (error) {
    if (error instanceof OutcomeUnknownError) throw error;
    if (error instanceof SpeechgateError || error instanceof CommandError) {
      await sent.drop();
      throw error;
    }
    const { pending } = sent;
    if (pending)
      throw signal.aborted ? new OutcomeUnknownError(pending, { cause: error }) : notWrittenError(pending, error);
    if (receipt) throw lost(receipt, error);
    if (!signal.aborted) throw error;
    const message = 'Interrupted. Nothing was bought.';
    throw new CommandError({ code: 'INTERRUPTED', exit: EXIT.interrupted, message });
  } finally {
    await file.close();
  }
}

function notWrittenError({ identifier }: PendingPurchase, error: unknown): CommandError {
  const resume = `speechgate resume ${identifier} --out FILE`;
  const message = `The audio could not be written to its file: ${(error as Error).message}. You were charged; get the audio with: ${resume}`;
  return new CommandError({ code: 'NOT_WRITTEN', exit: EXIT.failed, message, identifier, resume });
}

function lost({ chargedMicroUsd }: Receipt, cause: unknown): AudioLostError {
  const remedy = 'You were charged, and the service does not keep this audio. Next time use --durable.';
  const message = `The audio could not be written to its file: ${(cause as Error).message}. ${remedy}`;
  return new AudioLostError(message, { chargedMicroUsd, maxMicroUsd: chargedMicroUsd }, { cause });
}

type Player = readonly [program: string, ...args: string[]];

/** Programs that play MP3 and WAV, exit at the end, and print nothing. */
const PLAYERS: readonly Player[] = [
  ['ffplay', '-nodisp', '-autoexit', '-loglevel', 'error'],
  ['mpv', '--no-video', '--really-quiet'],
  ['mpg123', '-q'],
  ['afplay'],
  ['play', '-q'],
];

async function findPlayer(env: NodeJS.ProcessEnv): Promise<Player> {
  for (const [name, ...args] of PLAYERS) {
    const program = await findProgram(name, env);
    if (program) return [program, ...args];
  }
  const install = process.platform === 'darwin' ? 'brew install ffmpeg' : 'apt install mpg123';
  throw new UsageError(
    `--play found no audio player. Install ffmpeg, mpv or mpg123 (${install}), or use --out. Nothing was bought.`,
  );
}

export async function play([program, ...args]: Player, path: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  // An absolute path, because a leading dash would be an option.
  const player = spawn(program, [...args, resolve(path)], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: childEnv(env),
  });
  const [code] = await once(player, 'exit');
  return code === 0;
}
