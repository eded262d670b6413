import { type AccountState, readAccounts } from '../../audit/account-history.ts';
import { accountsNamed, SHORT_ID, shortenAccount } from '../../audit/account-names.ts';
import type { Database } from '../../db/database.ts';

export const ACCOUNT_USAGE = `
  ACCOUNT          a card account's id, or its beginning as these commands show it; or a wallet's address`;
const EXIT_UNKNOWN = 1;

/** How operators call an account: a wallet's address, or the beginning of a card account's id, which is a secret. */
export const nameOf = ({ id, address }: Pick<AccountState, 'id' | 'address'>, showsSecrets = false): string =>
  address ?? (showsSecrets ? id : shortenAccount(id));

/** The one account that is meant; otherwise says what is wrong, sets the exit code, and tells undefined. */
export async function readNamed(db: Database, name: string): Promise<AccountState | undefined> {
  const ids = await accountsNamed(db, name);
  const accounts = await readAccounts(db, ids ?? []);
  const [account] = accounts;
  if (account && accounts.length === 1) return account;
  process.exitCode = EXIT_UNKNOWN;
  if (accounts.length > 1) console.error(`Several accounts begin so. Give more of the id.`);
  else if (ids) console.error('There is no such account.');
  else console.error(`That is no account: give ${SHORT_ID} digits of a card account's id, or a wallet's address.`);
  return undefined;
}
