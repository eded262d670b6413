#!/usr/bin/env node
import { createRequire } from 'node:module';
import { runCommand } from './callers/cli/command.ts';
import { callerCommands } from './callers/cli/commands.ts';
import { EXIT } from './callers/cli/failure.ts';
import { EXIT_MISSING, missingPackages } from './lib/missing-packages.ts';
import { nearest } from './lib/misspelt.ts';
import { printable, tableLine } from './lib/printable.ts';
import { type ListedCommand, operatorCommands } from './operators/cli/commands.ts';

const HELP = ['--help', '-h', 'help'];

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

const trials: Readonly<Record<string, Command>> = {
  sandbox: {
    about: 'runs the whole service on this machine; no real money moves',
    run: () => import('./sandbox/sandbox-command.ts'),
  },
  voice: {
    about: "runs the included voice as a server of OpenAI's speech API",
    run: () => import('./sandbox/voice-command.ts'),
  },
};

const operators: Readonly<Record<string, Command>> = Object.fromEntries(
  Object.entries(operatorCommands).map(([name, listed]) => [
    name,
    { ...listed, run: () => runOperatorCommand(listed) },
  ]),
);

/** Operators' commands work without `admin` too, except for names that callers' commands begin with. */
const callerWords = Object.keys(callers).map((name) => name.split(' ')[0]);
const plainOperators = Object.fromEntries(Object.entries(operators).filter(([name]) => !callerWords.includes(name)));

endQuietlyWithReader();
await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<void> {
  const [name = '--help', ...words] = args;
  if (name === '--version') return console.log(createRequire(import.meta.url)('../package.json').version);
  if (name === 'help' && words.length > 0) return main([...words, '--help']);
  if (HELP.includes(name)) {
    console.log('Usage: speechgate COMMAND. See speechgate help COMMAND for its options.');
    printCommands('For callers', callers);
    printCommands('To try it on this machine', trials);
    return printCommands('For operators: speechgate admin COMMAND (settings come from the environment)', operators);
  }
  if (name === 'resume' && words.includes('--reason')) {
    console.error('speechgate resume takes the ID of a purchase. Run speechgate admin resume to resume a paused flow.');
    process.exitCode = EXIT.usage;
    return;
  }
  if (name !== 'admin') return start(args, { ...plainOperators, ...trials, ...callers });
  if (words[0] !== undefined && !HELP.includes(words[0])) return start(words, operators, 'admin ');
  console.log('Usage: speechgate admin COMMAND. See speechgate help admin COMMAND for its options.');
  printCommands('For operators (settings come from the environment)', operators);
}

async function start(args: readonly string[], commands: Readonly<Record<string, Command>>, prefix = ''): Promise<void> {
  const name = [args.slice(0, 2).join(' '), `${args[0]}`].find((each) => Object.hasOwn(commands, each));
  const command = name === undefined ? undefined : commands[name];
  if (!name || !command) return refuse(args[0] ?? '', commands, prefix);
  const missing = missingPackages(name, command.needs ?? []);
  if (missing) {
    console.error(missing);
    process.exitCode = EXIT_MISSING;
    return;
  }
  // Leaves only the arguments after the name.
  process.argv = [...process.argv.slice(0, 2), ...args.slice(name.split(' ').length)];
  await command.run();
}

function refuse(name: string, commands: Readonly<Record<string, Command>>, prefix: string): void {
  const meant = nearest(name, Object.keys(commands));
  const similar = Object.keys(commands).filter((each) => each === meant || each.startsWith(`${name} `));
  const hints = similar.map((each) => `speechgate ${prefix}${each}`);
  if (prefix === '' && Object.hasOwn(operators, name)) hints.push(`speechgate admin ${name} for operators`);
  const hint =
    hints.length > 0 ? `Did you mean ${hints.join(', or ')}?` : `speechgate ${prefix}--help lists the commands.`;
  console.error(`speechgate has no command ${prefix}${printable(name)}. ${hint}`);
  process.exitCode = EXIT.usage;
}

function printCommands(title: string, commands: Readonly<Record<string, Command>>): void {
  console.log(`\n${title}:`);
  for (const [known, { about }] of Object.entries(commands)) console.log(`  ${tableLine([15], [known, about])}`);
}

async function runOperatorCommand({ load, endsWithReader, endsAtOnce }: ListedCommand): Promise<void> {
  if (endsWithReader) process.stdout.on('error', () => process.exit());
  const { env, stdout, stderr } = process;
  const context = {
    env,
    console,
    stdout,
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
