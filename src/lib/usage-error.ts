/** A wrong command line. The message is one line that names the option and the fix. */
export class UsageError extends Error {}
