import { freezeAccount } from '../../operators/account-changes.ts';
import { endWith, readArguments } from '../arguments.ts';
import { commandSettings } from '../command-settings.ts';
import { confirmed, DEED_OPTIONS, DEED_USAGE, readDeed } from '../deed.ts';
import { look } from '../look.ts';
import { ACCOUNT_USAGE, nameOf, readNamed } from './named.ts';

/** Runs `speechgate accounts freeze` or `unfreeze`. */
export async function changeFreezing(isFrozen: boolean): Promise<void> {
  const usage = `speechgate accounts ${isFrozen ? 'freeze' : 'unfreeze'} ACCOUNT --reason TEXT${ACCOUNT_USAGE}${DEED_USAGE}`;
  const { values, positionals } = readArguments({ allowPositionals: true, options: DEED_OPTIONS }, usage);
  const [named, ...more] = positionals;
  if (named === undefined || more.length > 0) endWith(usage);
  const deed = readDeed(values);
  const settings = await commandSettings();
  await look({ settings, subject: 'The account', use: 'changed' }, async (db) => {
    const account = await readNamed(db, named);
    if (!account) return;
    if (account.kind !== 'card') endWith('Only card accounts can be frozen.');
    const name = nameOf(account);
    const change = isFrozen
      ? `This freezes ${name}: what is asked for its credit gets 402 until it is unfrozen; what runs is finished.`
      : `This lets the credit of ${name} be spent again.`;
    if (!(await confirmed(change, values.yes))) return;
    const isChanged = await freezeAccount(db, account.id, isFrozen, deed);
    const state = isFrozen ? 'frozen' : 'not frozen';
    console.log(isChanged ? `${name} is ${state}` : `${name} was ${state} before`);
  });
}
