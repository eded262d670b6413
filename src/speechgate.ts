#!/usr/bin/env node
import { runCommand } from './callers/cli/command.ts';
import { callerCommands } from './callers/cli/commands.ts';
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
