#!/usr/bin/env node
import { runCommand } from './callers/cli/command.ts';
import { callerCommands } from './callers/cli/commands.ts';
import { EXIT } from './callers/cli/failure.ts';
import { EXIT_MISSING, missingPackages } from './lib/missing-packages.ts';
import { printable, tableLine } from './lib/printable.ts';

interface Command {
  readonly about: string;
  readonly run: () => Promise<unknown>;
  readonly needs?: readonly string[];
}

const callers: Readonly<Record<string, Command>> = Object.fromEntries(
  Object.entries(callerCommands).map(([name, { load, ...command }]) => {
    const run = async () => runCommand(await load());
    return [name, { ...command, run }];
  }),
);

const operators: Readonly<Record<string, Command>> = {
  sandbox: {
    about: 'runs the whole service on this machine, to try it',
    run: () => import('./sandbox/sandbox-command.ts'),
  },
  voice: {
    about: "runs the included voice as a server of OpenAI's speech API",
    run: () => import('./sandbox/voice-command.ts'),
  },
  migrate: {
    about: 'updates the database schema',
    run: () => import('./operators/cli/migrate-command.ts'),
  },
  doctor: {
    about: 'checks the settings, and the services they name',
    run: () => import('./operators/cli/doctor-command.ts'),
  },
  audit: {
    about: 'checks the ledger; --external compares it with processor and chain',
    run: () => import('./operators/cli/audit-command.ts'),
  },
  reconcile: {
    about: 'runs every reconciler once',
    run: () => import('./operators/cli/reconcile-command.ts'),
  },
  trace: { about: 'the ledger entries of one request', run: () => import('./operators/cli/trace-command.ts') },
  report: {
    about: 'sales, revenue and liabilities by day',
    run: () => import('./operators/cli/report-command.ts'),
  },
  accounts: {
    about: 'shows, finds, freezes, adjusts and refunds accounts',
    run: () => import('./operators/cli/accounts-command.ts'),
  },
  payments: {
    about: 'USDC payments without a clear outcome',
    run: () => import('./operators/cli/payments-command.ts'),
  },
  pause: {
    about: 'refuses new work of a flow until it is resumed',
    run: async () => (await import('./operators/cli/pauses.ts')).pause(),
  },
  'resume FLOW': {
    about: 'resumes a paused flow',
    run: async () => (await import('./operators/cli/pauses.ts')).resume(),
  },
  paused: { about: 'the paused flows', run: async () => (await import('./operators/cli/pauses.ts')).paused() },
  feedback: { about: 'the stored feedback', run: () => import('./operators/cli/feedback-command.ts') },
  keys: { about: 'creates or rotates the signing keys', run: () => import('./operators/cli/keys-command.ts') },
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
  if (name === 'resume' && (await namesFlow(words))) return operators['resume FLOW'];
  return [callers, operators].map((group) => (Object.hasOwn(group, name) ? group[name] : undefined)).find(Boolean);
}

/** Distinguishes `resume FLOW` from `resume ID`: IDs of purchases are longer than names of flows. */
async function namesFlow(words: readonly string[]): Promise<boolean> {
  const { FLOWS } = await import('./ledger/pauses.ts');
  return words.some((word) => ['--reason', 'all', ...FLOWS].includes(word));
}

function printCommands(title: string, commands: Readonly<Record<string, Command>>): void {
  console.log(`\n${title}:`);
  for (const [known, { about }] of Object.entries(commands)) console.log(`  ${tableLine([15], [known, about])}`);
}

/** A reader such as `head` may close the pipe early. The command then finishes without further output. */
function endQuietlyWithReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
}
