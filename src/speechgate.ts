#!/usr/bin/env node
import { EXIT } from './callers/cli/failure.ts';
import { EXIT_MISSING, missingPackages } from './lib/missing-packages.ts';
import { printable, tableLine } from './lib/printable.ts';
import { type ListedCommand, operatorCommands } from './operators/cli/commands.ts';

interface Command {
  readonly shownAs?: string;
  readonly about: string;
  readonly run: () => Promise<unknown>;
  readonly needs?: readonly string[];
}

const callers: Readonly<Record<string, Command>> = {
  connect: {
    about: 'stores the service, wallet, trusted keys and spending caps',
    run: () => import('./callers/cli/connect-command.ts'),
  },
  setup: { about: 'the same as connect', run: () => import('./callers/cli/connect-command.ts') },
  say: { about: 'buys speech and writes it to a file', run: () => import('./callers/cli/say-command.ts') },
  voices: { about: 'the voices of a model', run: () => import('./callers/cli/voices-command.ts') },
  models: { about: 'the models and their prices', run: () => import('./callers/cli/models-command.ts') },
  quote: { about: 'what a text would cost', run: () => import('./callers/cli/quote-command.ts') },
  'top-up': { about: 'buys credit by card', run: () => import('./callers/cli/top-up-command.ts') },
  deposit: {
    about: 'deposits USDC of the wallet to its prepaid balance',
    run: () => import('./callers/cli/deposit-command.ts'),
  },
  balance: { about: 'the balance of the account or wallet', run: () => import('./callers/cli/balance-command.ts') },
  budget: {
    about: 'what was spent, and what is left under the caps',
    run: () => import('./callers/cli/budget-command.ts'),
  },
  resume: {
    about: 'checks the outcome of a purchase and fetches its audio',
    run: () => import('./callers/cli/resume-command.ts'),
  },
  'verify-metadata': {
    about: 'verifies the metadata of the service with its pinned key',
    run: () => import('./callers/cli/verify-metadata-command.ts'),
  },
  bridge: {
    about: "a local server for programs that speak OpenAI's speech API",
    run: () => import('./callers/cli/bridge-command.ts'),
    needs: ['mpg123-decoder'],
  },
  mcp: {
    about: 'an MCP server that lets agents buy speech within a budget',
    run: () => import('./callers/cli/mcp-command.ts'),
    needs: ['@modelcontextprotocol/sdk'],
  },
  'feedback send': {
    about: 'signs feedback with the wallet and sends it',
    run: () => import('./callers/cli/feedback-command.ts'),
  },
};

const operators: Readonly<Record<string, Command>> = {
  sandbox: {
    about: 'runs the whole service on this machine, to try it',
    run: () => import('./sandbox/sandbox-command.ts'),
  },
  voice: {
    about: "runs the included voice as a server of OpenAI's speech API",
    run: () => import('./sandbox/voice-command.ts'),
  },
  ...Object.fromEntries(
    Object.entries(operatorCommands).map(([name, listed]) => [
      name,
      { ...listed, run: () => runOperatorCommand(listed) },
    ]),
  ),
};

endQuietlyWithReader();
const [name, ...words] = process.argv.slice(2);
const command = await find(name, words);
const missing = command?.needs && missingPackages(`${name}`, command.needs);
if (missing) {
  console.error(missing);
  process.exitCode = EXIT_MISSING;
} else if (command) await command.run();
else if (name === undefined || ['--help', '-h', 'help'].includes(name)) {
  console.log('Usage: speechgate COMMAND. See speechgate COMMAND --help for its options.');
  printCommands('For callers', callers);
  printCommands('For operators (settings come from the environment)', operators);
} else {
  console.error(`speechgate has no command ${printable(name)}. speechgate --help lists them.`);
  process.exitCode = EXIT.usage;
}

/** Leaves only the arguments in process.argv. They decide between the two commands named `feedback` or `resume`. */
async function find(name = '', words: readonly string[]): Promise<Command | undefined> {
  const program = process.argv.slice(0, 2);
  process.argv = [...program, ...words];
  if (name === 'feedback' && words[0] === 'send') {
    process.argv = [...program, ...words.slice(1)];
    return callers['feedback send'];
  }
  if (name === 'resume' && (await namesFlow(words))) return operators.resume;
  return [callers, operators].map((group) => (Object.hasOwn(group, name) ? group[name] : undefined)).find(Boolean);
}

/** Distinguishes `resume FLOW` from `resume ID`: IDs of purchases are longer than names of flows. */
async function namesFlow(words: readonly string[]): Promise<boolean> {
  const { FLOWS } = await import('./ledger/pauses.ts');
  return words.some((word) => ['--reason', 'all', ...FLOWS].includes(word));
}

function printCommands(title: string, commands: Readonly<Record<string, Command>>): void {
  console.log(`\n${title}:`);
  for (const [known, { shownAs = known, about }] of Object.entries(commands)) {
    console.log(`  ${tableLine([15], [shownAs, about])}`);
  }
}

async function runOperatorCommand({ load, endsWithReader, endsAtOnce }: ListedCommand): Promise<void> {
  if (endsWithReader) process.stdout.on('error', () => process.exit());
  const { env, stderr } = process;
  const context = {
    env,
    console,
    stderr,
    get stdin() {
      return process.stdin;
    },
  };
  const command = await load();
  process.exitCode = await command(process.argv.slice(2), context);
  if (endsAtOnce) process.exit();
}

/** A reader such as `head` may close the pipe early. The command then finishes without further output. */
function endQuietlyWithReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
}
