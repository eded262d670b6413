import { resolve } from 'node:path';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import { readUsd, UsageError } from '../../lib/arguments.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { RUN_SPEECHGATE_ANYWHERE } from '../../lib/run-speechgate.ts';
import { watchLost } from '../budget/purchases.ts';
import { ToolError } from '../mcp/results.ts';
import { createMcpServer, type McpParts } from '../mcp/server.ts';
import { SpeechFolder } from '../mcp/speech-folder.ts';
import { defineCommand } from './command.ts';
import { failureOf } from './failure.ts';
import { assertCanPay, withCaller } from './open-caller.ts';
import { readFlow } from './read-values.ts';
import { capsLine } from './settings.ts';
import { homePath } from './settings-folder.ts';

/** Standard output is reserved for the protocol. */
export const mcpCommand = defineCommand({
  usage: `speechgate mcp --folder FOLDER
An MCP server on standard input and output: an agent buys speech through it, within your caps. The agent's program starts
the server. Its tools are list_voices, quote, speak and balance.

  --folder FOLDER  the only folder that audio is written to, absolute or with ~/; it must exist
  --pay FLOW       card, x402 or prepaid; default: as set by speechgate connect
  --max USD        maximum price of a call, in addition to the caps of speechgate connect`,
  example: `claude mcp add speechgate -- ${RUN_SPEECHGATE_ANYWHERE} mcp --folder ~/speech`,
  options: {
    folder: { type: 'string' },
    pay: { type: 'string' },
    max: { type: 'string' },
  },
  run: async ({ folder: path, pay, max }, { output, host }) => {
    let isServing = false;
    const serve = async (parts: McpParts | ToolError) => {
      isServing = true;
      const transport = new StdioServerTransport(host.stdin, host.stdout);
      serveStdio(() => createMcpServer(parts), { transport });
      const { onclose } = transport;
      await new Promise<void>((resolve) => {
        transport.onclose = () => {
          onclose?.();
          resolve();
        };
      });
    };
    try {
      const folder = await openFolder(path);
      const options = {
        pay: pay === undefined ? undefined : readFlow(pay, '--pay'),
        maxMicroUsd: max === undefined ? undefined : readUsd(max, '--max'),
      };
      await withCaller(host, options, async (caller) => {
        assertCanPay(caller);
        output.note(capsLine(caller.caps));
        const { client, budget, saved } = caller;
        const { flow } = caller.settings;
        const stopWatching = watchLost(budget, client, saved);
        try {
          await serve({ client, budget, saved, flow, folder });
        } finally {
          stopWatching();
        }
      });
    } catch (error) {
      if (isServing) throw error;
      const failure = failureOf(error);
      output.failed(failure);
      const text = `${failure.message} Ask your user to correct this and to restart this server. Nothing was bought.`;
      await serve(new ToolError(text));
    }
  },
});

async function openFolder(path: string | undefined): Promise<SpeechFolder> {
  if (path === undefined) throw new UsageError('--folder is missing. Name the folder for the audio: --folder FOLDER.');
  // Programs that start this one have no shell, and often start it in the root folder.
  const resolved = resolve(homePath(path));
  return SpeechFolder.open(resolved).catch((error) => {
    if (error instanceof ForeignFileError) {
      throw new UsageError(
        `--folder ${resolved} belongs to another user, or is reached by too many symbolic links or one of another user. Name a folder of your own. Nothing was written.`,
      );
    }
    throw new UsageError(
      `--folder ${resolved} is not a folder that this user can open. Create it, or name another by its absolute path or with ~/.`,
    );
  });
}
