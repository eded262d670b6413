import type { Database } from '../../../db/database.ts';
import { accountsNamed, SHORT_ID, shortenAccount } from '../../audit/account-names.ts';
import { type AccountState, readAccounts } from '../../audit/accounts.ts';

export const ACCOUNT_USAGE = `
  ACCOUNT          a card account's id or at least its first ${SHORT_ID} digits, or a wallet's address`;
const EXIT_UNKNOWN = 1;

/** A wallet's address, or the start of a card account's id, which is a secret. */
export const nameOf = ({ id, address }: Pick<AccountState, 'id' | 'address'>, showsSecrets = false): string =>
  address ?? (showsSecrets ? id : shortenAccount(id));

/** Unless exactly one account matches: prints an error, sets the exit code, and returns undefined. */
export async function readNamed(db: Database, name: string): Promise<AccountState | undefined> {
  const ids = await accountsNamed(db, name);
  const accounts = await readAccounts(db, ids ?? []);
  const [account] = accounts;
  if (account && accounts.length === 1) return account;
  process.exitCode = EXIT_UNKNOWN;
  if (accounts.length > 1) console.error(`Several accounts match. Give more digits of the id.`);
  else if (ids) console.error('There is no such account.');
  else
    console.error(
      `That is not an account. Give at least ${SHORT_ID} digits of a card account's id, or a wallet's address.`,
    );
  return undefined;
}
