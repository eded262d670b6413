import type { Command } from './command.ts';

interface CallerCommand {
  readonly about: string;
  readonly load: () => Promise<Command>;
  readonly needs?: readonly string[];
}

/** By the words after `speechgate`. */
export const callerCommands: Readonly<Record<string, CallerCommand>> = {
  connect: {
    about: 'stores the service, wallet, trusted keys and spending caps',
    load: async () => (await import('./connect-command.ts')).connectCommand,
  },
  setup: { about: 'the same as connect', load: async () => (await import('./connect-command.ts')).connectCommand },
  say: {
    about: 'buys speech and writes it to a file',
    load: async () => (await import('./say-command.ts')).sayCommand,
  },
  voices: { about: 'the voices of a model', load: async () => (await import('./voices-command.ts')).voicesCommand },
  models: {
    about: 'the models and their prices',
    load: async () => (await import('./models-command.ts')).modelsCommand,
  },
  quote: { about: 'what a text would cost', load: async () => (await import('./quote-command.ts')).quoteCommand },
  'top-up': { about: 'buys credit by card', load: async () => (await import('./top-up-command.ts')).topUpCommand },
  deposit: {
    about: 'deposits USDC of the wallet to its prepaid balance',
    load: async () => (await import('./deposit-command.ts')).depositCommand,
  },
  balance: {
    about: 'the balance of the account or wallet',
    load: async () => (await import('./balance-command.ts')).balanceCommand,
  },
  account: {
    about: 'the credit account, and with --show its id',
    load: async () => (await import('./balance-command.ts')).accountCommand,
  },
  budget: {
    about: 'what was spent, and what is left under the caps',
    load: async () => (await import('./budget-command.ts')).budgetCommand,
  },
  resume: {
    about: 'checks the outcome of a purchase and fetches its audio',
    load: async () => (await import('./resume-command.ts')).resumeCommand,
  },
  'verify-metadata': {
    about: 'verifies the metadata of the service with its pinned key',
    load: async () => (await import('./verify-metadata-command.ts')).verifyMetadataCommand,
  },
  bridge: {
    about: "a local server for programs that speak OpenAI's speech API",
    load: async () => (await import('./bridge-command.ts')).bridgeCommand,
    needs: ['mpg123-decoder'],
  },
  mcp: {
    about: 'an MCP server that lets agents buy speech within a budget',
    load: async () => (await import('./mcp-command.ts')).mcpCommand,
    needs: ['@modelcontextprotocol/server'],
  },
  'feedback send': {
    about: 'signs feedback with the wallet and sends it',
    load: async () => (await import('./feedback-command.ts')).feedbackSendCommand,
  },
};
