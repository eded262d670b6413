import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { FileBudget } from '../budget/file-budget.ts';
import { Purchases, type SavedSpeech } from '../budget/purchases.ts';
import type { Flow, Speechgate } from '../client/index.ts';
import { addBalance, addListVoices, addQuote } from './free-tools.ts';
import { SharedPurchases } from './shared-purchases.ts';
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

const INSTRUCTIONS =
  'Text to speech, paid per request from a budget that your user has set. list_voices, quote and balance are free. speak ' +
  'pays and writes a file. If it reports an unknown outcome, resume that purchase instead of repeating the text.';

export function createMcpServer(parts: McpParts): McpServer {
  const server = new McpServer({ name: 'speechgate', version: '1' }, { instructions: INSTRUCTIONS });
  addListVoices(server, parts);
  addQuote(server, parts);
  const purchases = new Purchases(parts.client, true, parts.saved);
  addSpeak(server, parts, purchases, new SharedPurchases(purchases, parts.lateMs));
  addBalance(server, parts);
  return server;
}
