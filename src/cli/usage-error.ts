/** What was said can't be done; the message is one line that names the option and the fix. */
export class UsageError extends Error {}
