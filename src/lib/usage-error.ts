/** A wrong command line. The message is one line that names the option and the fix. The command's usage follows it. */
export class UsageError extends Error {}
