/** A credit account as it is shown: who has the whole id can spend its credit. */
export const shownAccount = (accountId: string): string => `${accountId.slice(0, 8)}…`;
