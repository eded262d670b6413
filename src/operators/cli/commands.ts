import type { OperatorCommand } from './command.ts';

export interface ListedCommand {
  readonly about: string;
  readonly load: () => Promise<OperatorCommand>;
  /** Only lists something: ends when its reader does, such as `head`. */
  readonly endsWithReader?: true;
  /** Ends the process although a connection may still be open. */
  readonly endsAtOnce?: true;
}

/** Each is loaded when it is run. */
export const operatorCommands: Readonly<Record<string, ListedCommand>> = {
  migrate: {
    about: 'updates the database schema',
    load: async () => (await import('./migrate-command.ts')).migrateCommand,
  },
  doctor: {
    about: 'checks the settings, and the services that they name',
    load: async () => (await import('./doctor-command.ts')).doctorCommand,
    endsAtOnce: true,
  },
  audit: {
    about: 'checks the ledger; --external compares it with the card processor and the chain',
    load: async () => (await import('./audit-command.ts')).auditCommand,
  },
  reconcile: {
    about: 'completes unfinished payments now: runs every reconciler once',
    load: async () => (await import('./reconcile-command.ts')).reconcileCommand,
  },
  trace: {
    about: 'prints the ledger entries of one request',
    load: async () => (await import('./trace-command.ts')).traceCommand,
  },
  report: {
    about: 'prints sales, revenue and liabilities by day',
    load: async () => (await import('./report-command.ts')).reportCommand,
  },
  accounts: {
    about: 'lists, shows, changes, refunds, exports and erases accounts',
    load: async () => (await import('./accounts-command.ts')).accountsCommand,
  },
  payments: {
    about: 'lists USDC payments without a clear outcome',
    load: async () => (await import('./payments-command.ts')).paymentsCommand,
    endsWithReader: true,
  },
  pause: {
    about: 'refuses new requests of a flow (card, jobs, top-up, direct, prepaid, deposit) until it is resumed',
    load: async () => (await import('./pauses.ts')).pauseCommand,
  },
  resume: {
    about: 'resumes a paused flow',
    load: async () => (await import('./pauses.ts')).resumeCommand,
  },
  paused: { about: 'lists the paused flows', load: async () => (await import('./pauses.ts')).pausedCommand },
  feedback: {
    about: 'prints the stored feedback',
    load: async () => (await import('./feedback-command.ts')).feedbackCommand,
    endsWithReader: true,
  },
  samples: {
    about: 'makes one sample of each voice, which callers hear for free',
    load: async () => (await import('./samples-command.ts')).samplesCommand,
  },
  keys: {
    about: 'creates or rotates the signing keys',
    load: async () => (await import('./keys-command.ts')).keysCommand,
  },
};
