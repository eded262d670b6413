import { once } from 'node:events';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { watchLost } from '../../budget/watch-lost.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { RUN_SPEECHGATE_ANYWHERE } from '../../lib/run-speechgate.ts';
import { createMcpServer } from '../../mcp/server.ts';
import { SpeechFolder } from '../../mcp/speech-folder.ts';
import { UsageError } from '../usage-error.ts';
import { assertCanPay } from './can-pay.ts';
import { capsLine } from './caps.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { readFlow } from './flow-word.ts';
import { keptSpeech } from './kept-purchases.ts';
import { openCaller } from './open-caller.ts';
import { readUsd } from './usd.ts';

/** `speechgate mcp`: standard output is the protocol's alone. */
await runCommand({
  usage: `speechgate mcp --folder FOLDER
A voice with a budget for an agent, over MCP: it speaks the protocol on standard input and output, so an agent's program
starts it. Its tools are list_voices, quote, speak and balance.

  --folder FOLDER  the one folder that speech is written to; it has to exist
  --pay FLOW       card, x402 or prepaid, instead of the one that is set
  --max USD        the most that one call may cost, beside the caps that are set`,
  example: `claude mcp add speechgate -- ${RUN_SPEECHGATE_ANYWHERE} mcp --folder ~/speech`,
  options: {
    ...COMMON_OPTIONS,
    folder: { type: 'string' },
    pay: { type: 'string' },
    max: { type: 'string' },
  },
  maxWords: 0,
  run: async ({ folder: path, pay, max }, _words, output) => {
    const folder = await openFolder(path);
    const caller = await openCaller({
      ...(pay !== undefined && { pay: readFlow(pay, '--pay') }),
      ...(max !== undefined && { maxMicroUsd: readUsd(max, '--max') }),
    });
    assertCanPay(caller);
    output.note(capsLine(caller.caps));
    const { client, budget, flow, settings } = caller;
    const kept = keptSpeech(settings.folder);
    const server = createMcpServer({ client, budget, kept, flow, folder });
    const stopWatching = watchLost(budget, client, kept);
    const closed = new Promise<void>((resolve) => {
      server.server.onclose = resolve;
    });
    const ended = once(process.stdin, 'end');
    await server.connect(new StdioServerTransport());
    await Promise.race([ended, closed]);
    await server.close();
    stopWatching();
    await budget.close();
  },
});

async function openFolder(path: string | undefined): Promise<SpeechFolder> {
  if (path === undefined) throw new UsageError('Say where speech may be written: --folder FOLDER.');
  return SpeechFolder.open(path).catch((error) => {
    if (error instanceof ForeignFileError) {
      throw new UsageError(
        `--folder ${path} is another user's, or a link of theirs. Name a folder of your own. Nothing was written.`,
      );
    }
    throw new UsageError(`--folder ${path} is no folder. Make it, or name another one.`);
  });
}
