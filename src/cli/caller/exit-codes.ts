/** How the commands of callers end; each is told in every --help, and in docs/command-line.md. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  noMoney: 3,
  overCap: 4,
  unknownOutcome: 5,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_HELP = `Exit codes: 0 done, 1 the service or something else failed, 2 the command was said wrongly, 3 no money,
4 over a cap (nothing was signed), 5 not known whether it was charged (resume it), 130 interrupted`;
