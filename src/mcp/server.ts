import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { FileBudget } from '../budget/file-budget.ts';
import type { KeptSpeech } from '../budget/kept-speech.ts';
import { Purchases } from '../budget/purchases.ts';
import type { Flow, Speechgate } from '../client/index.ts';
import { addBalance } from './balance-tool.ts';
import { addListVoices } from './list-voices-tool.ts';
import { addQuote } from './quote-tool.ts';
import { SharedPurchases } from './shared-purchases.ts';
import { addSpeak } from './speak-tool.ts';
import type { SpeechFolder } from './speech-folder.ts';

/** What the tools work with. */
export interface McpParts {
  /** Spends under the budget. */
  readonly client: Speechgate;
  readonly budget: FileBudget;
  /** What was settled by others than who bought it, and whose audio can be fetched. */
  readonly kept: KeptSpeech;
  /** How the client pays. */
  readonly flow: Flow;
  /** Where speech is written to, and nowhere else. */
  readonly folder: SpeechFolder;
  /** Milliseconds after which a host may have given up on a call. */
  readonly lateMs?: number;
}

const INSTRUCTIONS =
  'Text to speech, paid per request from a budget that your user has set. list_voices and quote are free. speak buys ' +
  'and writes a file; when it tells that an outcome is unknown, resume that purchase instead of asking again.';

/** A voice with a budget, for agents: it speaks over whatever transport it is connected to. */
export function createMcpServer(parts: McpParts): McpServer {
  const server = new McpServer({ name: 'speechgate', version: '1' }, { instructions: INSTRUCTIONS });
  addListVoices(server, parts);
  addQuote(server, parts);
  const purchases = new Purchases(parts.client, true, parts.kept);
  addSpeak(server, parts, purchases, new SharedPurchases(purchases, parts.lateMs));
  addBalance(server, parts);
  return server;
}
