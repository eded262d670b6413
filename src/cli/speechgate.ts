import { EXIT } from './caller/exit-codes.ts';
import { EXIT_MISSING, missingPackages } from './missing-packages.ts';
import { printable } from './printable.ts';
import { tableLine } from './table-line.ts';

interface Command {
  readonly about: string;
  /** Runs with what follows the command's name in process.argv, and sets the exit code. */
  readonly run: () => Promise<unknown>;
  /** The optional packages that it can't be loaded without. */
  readonly needs?: readonly string[];
}

const callers: Readonly<Record<string, Command>> = {
  connect: {
    about: 'sets the service, the wallet, the keys to trust, and caps',
    run: () => import('./caller/connect-command.ts'),
  },
  setup: { about: 'the same as connect', run: () => import('./caller/connect-command.ts') },
  say: { about: 'speaks a text into a file, and pays for it', run: () => import('./caller/say-command.ts') },
  voices: { about: 'the voices of a model', run: () => import('./caller/voices-command.ts') },
  models: { about: 'the models and their prices', run: () => import('./caller/models-command.ts') },
  quote: { about: 'what a text would cost', run: () => import('./caller/quote-command.ts') },
  'top-up': { about: 'buys credit by card', run: () => import('./caller/top-up-command.ts') },
  deposit: {
    about: 'puts USDC of the wallet onto its prepaid balance',
    run: () => import('./caller/deposit-command.ts'),
  },
  balance: { about: 'what the account or the wallet has', run: () => import('./caller/balance-command.ts') },
  budget: { about: 'what was spent, and what the caps leave', run: () => import('./caller/budget-command.ts') },
  resume: {
    about: 'asks how a purchase ended, and fetches its audio',
    run: () => import('./caller/resume-command.ts'),
  },
  'verify-metadata': {
    about: 'holds what the service says of itself against its pinned key',
    run: () => import('./caller/verify-metadata-command.ts'),
  },
  bridge: {
    about: "a local server for programs that speak OpenAI's speech API",
    run: () => import('./caller/bridge-command.ts'),
    needs: ['@mediabunny/aac-encoder', 'libflacjs', 'mediabunny', 'mpg123-decoder', 'opusscript'],
  },
  mcp: {
    about: 'a voice with a budget for agents, over MCP',
    run: () => import('./caller/mcp-command.ts'),
    needs: ['@modelcontextprotocol/sdk'],
  },
  'feedback send': { about: 'sends feedback that the wallet signs', run: () => import('./caller/feedback-command.ts') },
};

const operators: Readonly<Record<string, Command>> = {
  sandbox: { about: 'the whole service on this machine, to try it', run: () => import('./sandbox-command.ts') },
  migrate: { about: 'brings the database to the current schema', run: () => import('./migrate-command.ts') },
  doctor: { about: 'checks the whole configuration against its live parts', run: () => import('./doctor-command.ts') },
  audit: { about: 'checks the books, and holds them against the outside', run: () => import('./audit-command.ts') },
  reconcile: { about: 'finishes what dead processes left, once', run: () => import('./reconcile-command.ts') },
  trace: { about: 'what the books know of one request', run: () => import('./trace-command.ts') },
  report: { about: 'what was sold, earned and is owed, day by day', run: () => import('./report-command.ts') },
  accounts: { about: 'accounts: show, find, freeze, adjust, refund', run: () => import('./accounts-command.ts') },
  payments: { about: 'payments in USDC whose end is in doubt', run: () => import('./payments-command.ts') },
  pause: { about: 'takes nothing new by a flow, until it is resumed', run: () => import('./pause-command.ts') },
  'resume FLOW': { about: 'opens a paused flow again', run: () => import('./resume-command.ts') },
  paused: { about: 'what is paused', run: () => import('./paused-command.ts') },
  feedback: { about: 'the feedback that was stored', run: () => import('./feedback-command.ts') },
  keys: { about: 'makes or rotates the signing keys', run: () => import('./keys-command.ts') },
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
  console.log('speechgate COMMAND, one of these; speechgate COMMAND --help tells more.');
  printCommands('For those who speak', callers);
  printCommands('For operators; the environment has the settings', operators);
} else {
  console.error(`speechgate has no command ${printable(name)}. speechgate --help lists them.`);
  process.exitCode = EXIT.usage;
}

/** The command, with what follows its name left in process.argv. Two names mean two things: what follows tells which. */
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

/** Those of purchases are longer than the names of flows. */
async function namesFlow(words: readonly string[]): Promise<boolean> {
  const { FLOWS } = await import('../operators/pauses.ts');
  return words.some((word) => ['--reason', 'all', ...FLOWS].includes(word));
}

function printCommands(title: string, commands: Readonly<Record<string, Command>>): void {
  console.log(`\n${title}:`);
  for (const [known, { about }] of Object.entries(commands)) console.log(`  ${tableLine([15], [known, about])}`);
}

/** Whoever reads may stop reading, as head does: what is begun is finished, and says no more. */
function endQuietlyWithReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
}
