import { EXIT_USAGE } from './arguments.ts';
import { tableLine } from './table-line.ts';

interface Command {
  readonly about: string;
  /** Runs with what follows the command's name in process.argv, and sets the exit code. */
  readonly run: () => Promise<unknown>;
}

const commands: Readonly<Record<string, Command>> = {
  migrate: { about: 'brings the database to the current schema', run: () => import('./migrate-command.ts') },
  doctor: { about: 'checks the whole configuration against its live parts', run: () => import('./doctor-command.ts') },
  audit: { about: 'checks the books, and holds them against the outside', run: () => import('./audit-command.ts') },
  reconcile: { about: 'finishes what dead processes left, once', run: () => import('./reconcile-command.ts') },
  trace: { about: 'what the books know of one request', run: () => import('./trace-command.ts') },
  report: { about: 'what was sold, earned and is owed, day by day', run: () => import('./report-command.ts') },
  accounts: { about: 'accounts: show, find, freeze, adjust, refund', run: () => import('./accounts-command.ts') },
  payments: { about: 'payments in USDC whose end is in doubt', run: () => import('./payments-command.ts') },
  pause: { about: 'takes nothing new by a flow, until it is resumed', run: () => import('./pause-command.ts') },
  resume: { about: 'opens a paused flow again', run: () => import('./resume-command.ts') },
  paused: { about: 'what is paused', run: () => import('./paused-command.ts') },
  feedback: { about: 'the feedback that was stored', run: () => import('./feedback-command.ts') },
  keys: { about: 'makes or rotates the signing keys', run: () => import('./keys-command.ts') },
};

const [name, ...rest] = process.argv.slice(2);
const command = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
if (command) {
  process.argv = [...process.argv.slice(0, 2), ...rest];
  await command.run();
} else {
  const isHelp = name === undefined || name === '--help' || name === 'help';
  const print = isHelp ? console.log : console.error;
  if (!isHelp) print(`speechgate has no command ${name}. It has these:`);
  else print('speechgate COMMAND, one of these; the environment has the settings.');
  for (const [known, { about }] of Object.entries(commands)) print(`  ${tableLine([12], [known, about])}`);
  if (!isHelp) process.exitCode = EXIT_USAGE;
}
