import { formatUsd } from '../../lib/money.ts';
import { adjustBalance, MAX_ADJUSTMENT } from '../../operators/account-changes.ts';
import { EXIT_USAGE, endWith, readArguments } from '../arguments.ts';
import { commandSettings } from '../command-settings.ts';
import { confirmed, DEED_OPTIONS, DEED_USAGE, readDeed } from '../deed.ts';
import { look } from '../look.ts';
import { KEY_OPTION, KEY_USAGE, readKey } from './key.ts';
import { ACCOUNT_USAGE, nameOf, readNamed } from './named.ts';

const USAGE = `speechgate accounts adjust ACCOUNT ±MICRO-USD --reason TEXT${ACCOUNT_USAGE}
  ±MICRO-USD       what to give, as +5000000 for 5 USD, or to take, as -5000000${DEED_USAGE}${KEY_USAGE}`;
const AMOUNT = /^[+-]\d{1,15}$/;
const EXIT_REFUSED = 1;

/** `speechgate accounts adjust ACCOUNT ±MICRO-USD --reason TEXT` gives a card account credit, or takes some. */
const given = process.argv.slice(2);
// What begins with a minus would be taken for an option.
const args = given.filter((word) => !AMOUNT.test(word));
const { values, positionals } = readArguments(
  { args, allowPositionals: true, options: { ...DEED_OPTIONS, ...KEY_OPTION } },
  USAGE,
);
const [named, ...more] = positionals;
const amountMicroUsd = readAmount(given.filter((word) => AMOUNT.test(word)));
if (named === undefined || more.length > 0) endWith(USAGE);
const deed = readDeed(values);
const settings = await commandSettings();

await look({ settings, subject: 'The account', use: 'changed' }, async (db) => {
  const account = await readNamed(db, named);
  if (!account) return;
  if (account.kind !== 'card') endWith('Only card accounts can be adjusted: prepaid balances are final.');
  const name = nameOf(account);
  const amount = `${formatUsd(amountMicroUsd < 0n ? -amountMicroUsd : amountMicroUsd)} USD`;
  const change = amountMicroUsd > 0n ? `This gives ${name} ${amount}.` : `This takes ${amount} from ${name}.`;
  const key = readKey(values.key);
  if (!(await confirmed(`${change} It has ${formatUsd(account.balanceMicroUsd)} USD.`, values.yes))) return;
  const result = await adjustBalance(db, { accountId: account.id, amountMicroUsd, key }, deed);
  switch (result.outcome) {
    case 'adjusted': {
      const debt = result.debtPaidMicroUsd > 0n ? `, after ${formatUsd(result.debtPaidMicroUsd)} USD of its debt` : '';
      return console.log(`${name} has ${formatUsd(result.balanceMicroUsd)} USD${debt}`);
    }
    case 'made_before':
      return console.log('This was done before: nothing was changed.');
    case 'too_little':
      process.exitCode = EXIT_REFUSED;
      return console.error(`${name} has ${formatUsd(result.balanceMicroUsd)} USD only: nothing was changed.`);
    case 'key_of_another':
      process.exitCode = EXIT_USAGE;
      return console.error('This key belongs to another change: nothing was changed.');
    case 'unknown_account':
      process.exitCode = EXIT_REFUSED;
      return console.error('There is no such account.');
  }
});

function readAmount([text = '0', ...others]: readonly string[]): bigint {
  const amount = BigInt(text.replace('+', ''));
  if (others.length > 0 || amount === 0n || amount > MAX_ADJUSTMENT || amount < -MAX_ADJUSTMENT) endWith(USAGE);
  return amount;
}
