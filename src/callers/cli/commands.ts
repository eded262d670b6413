import type { Command } from './command.ts';

interface CallerCommand {
  readonly about: string;
  readonly load: () => Promise<Command>;
  readonly needs?: readonly string[];
}

const command = (about: string, load: () => Promise<Command>, ...needs: string[]): CallerCommand => ({
  about,
  load,
  needs,
});

const connect = async () => (await import('./connect-command.ts')).connectCommand;

/** By the words after `speechgate`. */
export const callerCommands: Readonly<Record<string, CallerCommand>> = {
  connect: command('stores the service, wallet, trusted keys and spending caps', connect),
  setup: command('the same as connect', connect),
  say: command('buys speech and writes it to a file', async () => (await import('./say-command.ts')).sayCommand),
  voices: command('the voices of a model', async () => (await import('./catalog-commands.ts')).voicesCommand),
  models: command('the models and their prices', async () => (await import('./catalog-commands.ts')).modelsCommand),
  quote: command('what a text would cost', async () => (await import('./catalog-commands.ts')).quoteCommand),
  'top-up': command('buys credit by card', async () => (await import('./top-up-command.ts')).topUpCommand),
  deposit: command(
    'deposits USDC of the wallet to its prepaid balance',
    async () => (await import('./balance-commands.ts')).depositCommand,
  ),
  balance: command(
    'the balance of the account or wallet',
    async () => (await import('./balance-commands.ts')).balanceCommand,
  ),
  account: command(
    'shows which credit account pays; --show prints its whole id',
    async () => (await import('./balance-commands.ts')).accountCommand,
  ),
  budget: command(
    'what was spent, and what is left under the caps',
    async () => (await import('./balance-commands.ts')).budgetCommand,
  ),
  resume: command(
    'checks the outcome of a purchase and fetches its audio',
    async () => (await import('./resume-command.ts')).resumeCommand,
  ),
  'verify-metadata': command(
    'verifies the metadata of the service with the trusted keys',
    async () => (await import('./catalog-commands.ts')).verifyMetadataCommand,
  ),
  bridge: command(
    "a local server for programs that use OpenAI's speech API",
    async () => (await import('./bridge-command.ts')).bridgeCommand,
    'mpg123-decoder',
  ),
  mcp: command(
    'an MCP server that lets agents buy speech within a budget',
    async () => (await import('./mcp-command.ts')).mcpCommand,
    '@modelcontextprotocol/server',
  ),
  'feedback send': command(
    'signs feedback with the wallet and sends it',
    async () => (await import('./feedback-command.ts')).feedbackSendCommand,
  ),
};
