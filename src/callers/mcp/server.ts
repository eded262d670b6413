import { McpServer } from '@modelcontextprotocol/server';
import type { FileBudget } from '../budget/file-budget.ts';
import { Purchases, type SavedSpeech } from '../budget/purchases.ts';
import type { Flow, Speechgate } from '../client/index.ts';
import { addBalance, addListVoices, addQuote } from './free-tools.ts';
import { ToolError } from './results.ts';
import { addSpeak } from './speak-tool.ts';
import type { SpeechFolder } from './speech-folder.ts';

export interface McpParts {
  readonly client: Speechgate;
  readonly budget: FileBudget;
  readonly saved: SavedSpeech;
  readonly flow: Flow;
  readonly folder: SpeechFolder;
  /** After this time the host may have stopped waiting for the call. */
  readonly lateMs?: number;
}

/** Most hosts time out after 30 or 60 seconds, often without cancelling the call. */
const LATE_MS = 20_000;

const INSTRUCTIONS =
  'Text to speech, paid per request from a budget that your user has set. list_voices, quote and balance are free. speak ' +
  'pays and writes a file. If it reports an unknown outcome, resume that purchase instead of repeating the text.';

export interface SpeakParts extends McpParts {
  readonly purchases: Purchases;
}

/** Returns what the tools need. @throws ToolError if the server could not be set up */
export type OpenParts = () => SpeakParts;

/** @param parts a fault if the server could not be set up: hosts show what a tool says, but not how a server ends */
export function createMcpServer(parts: McpParts | ToolError): McpServer {
  const server = new McpServer({ name: 'speechgate', version: '1' }, { instructions: INSTRUCTIONS });
  const open = parts instanceof ToolError ? failing(parts) : opened(parts);
  addListVoices(server, open);
  addQuote(server, open);
  addSpeak(server, open);
  addBalance(server, open);
  return server;
}

const failing =
  (fault: ToolError): OpenParts =>
  () => {
    throw fault;
  };

function opened(parts: McpParts): OpenParts {
  const { client, saved, lateMs = LATE_MS } = parts;
  const speakParts = { ...parts, purchases: new Purchases(client, { isDurable: true, saved, lateMs }) };
  return () => speakParts;
}
