import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageError } from '../usage-error.ts';
import { buySpeech } from './buy-speech.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { readFlow } from './flow-word.ts';
import { findPlayer, play } from './player.ts';
import { receiptLine } from './receipt-line.ts';
import { readOrder, SPEECH_OPTIONS, SPEECH_USAGE } from './speech-options.ts';
import { readUsd } from './usd.ts';

const OPTIONS = {
  ...COMMON_OPTIONS,
  ...SPEECH_OPTIONS,
  out: { type: 'string', short: 'o' },
  play: { type: 'boolean', default: false },
  pay: { type: 'string' },
  max: { type: 'string' },
  durable: { type: 'boolean', default: false },
} as const;

/** `speechgate say TEXT --out FILE` */
await runCommand({
  usage: `speechgate say TEXT|- --out FILE
Speaks a text, pays for it, and writes the audio, which is MP3 as a rule.
${SPEECH_USAGE}
  --out FILE       where the audio goes, whole or not at all; - writes it to standard output
  --play           plays it, with a player of this system
  --pay FLOW       card, x402 or prepaid; otherwise as set by speechgate connect
  --max USD        what it may cost at most, such as 0.01; more is refused before anything is signed
  --durable        with card credits: as a job, whose audio can be fetched again when the answer is lost`,
  example: 'speechgate say "Hello world" --out hello.mp3 --play',
  options: OPTIONS,
  maxWords: 1,
  run: async (values, [word], output) => {
    const { out, max } = values;
    if (out === undefined && !values.play) {
      throw new UsageError('--out is missing: name a file, or - for standard output; or say --play.');
    }
    if (out === '-' && (values.json || values.play)) {
      throw new UsageError(`--out - can't go with ${values.json ? '--json' : '--play'}. Name a file.`);
    }
    const pay = values.pay === undefined ? undefined : readFlow(values.pay, '--pay');
    const maxMicroUsd = max === undefined ? undefined : readUsd(max, '--max');
    const order = await readOrder(values, word);
    const player = values.play ? await findPlayer(process.env) : undefined;
    const folder = out === undefined ? await mkdtemp(join(tmpdir(), 'speechgate-')) : undefined;
    const path = out ?? join(folder as string, 'speech');
    try {
      const bought = await buySpeech({
        ...{ order, path, pay, maxMicroUsd, durable: values.durable },
        ...{ isLasting: out !== undefined && out !== '-', output },
      });
      const line = `${out ?? 'Speech'}: ${receiptLine(bought)}`;
      if (out === '-') output.note(line);
      else output.done({ file: out ?? null, ...bought }, [line]);
      if (player && !(await play(player, path))) output.note(`${player[0]} could not play it.`);
    } finally {
      if (folder) await rm(folder, { recursive: true, force: true });
    }
  },
});
