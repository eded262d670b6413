import type { Database } from '../../../db/database.ts';
import { accountsNamed, SHORT_ID, shortenAccount } from '../../audit/account-names.ts';
import { type AccountState, readAccounts } from '../../audit/accounts.ts';
import { ExitError } from '../command.ts';

export const ACCOUNT_USAGE = `
  ACCOUNT          a card account's id or at least its first ${SHORT_ID} digits, or a wallet's address`;
const EXIT_UNKNOWN = 1;

/** A wallet's address, or the start of a card account's id, which is a secret. */
export const nameOf = ({ id, address }: Pick<AccountState, 'id' | 'address'>, showsSecrets = false): string =>
  address ?? (showsSecrets ? id : shortenAccount(id));

/** @throws ExitError unless exactly one account matches */
export async function readNamed(db: Database, name: string): Promise<AccountState> {
  const ids = await accountsNamed(db, name);
  const accounts = await readAccounts(db, ids ?? []);
  const [account] = accounts;
  if (account && accounts.length === 1) return account;
  if (accounts.length > 1) throw new ExitError('Several accounts match. Give more digits of the id.', EXIT_UNKNOWN);
  throw new ExitError(
    ids
      ? 'There is no such account.'
      : `That is not an account. Give at least ${SHORT_ID} digits of a card account's id, or a wallet's address.`,
    EXIT_UNKNOWN,
  );
}
