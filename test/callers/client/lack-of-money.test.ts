import { test } from 'tap';
import { toApiError } from '../../../src/callers/bridge/api-error.ts';
import { failureOf } from '../../../src/callers/cli/failure.ts';
import { paid } from '../../../src/callers/cli/open-caller.ts';
import { OverCapError } from '../../../src/callers/client/errors.ts';
import { serviceError } from '../../../src/callers/client/service-error.ts';
import { toResult } from '../../../src/callers/mcp/results.ts';

const ADDRESS = `0x${'ab'.repeat(20)}`;
const WALLET = { address: ADDRESS, network: 'eip155:8453', amountMicroUsd: 198n };
const CARD = ['https://speech.example/top-up?account=secret', null] as const;
const PREPAID = [null, null] as const;
const CHAIN = [null, WALLET] as const;
const AT_WALLET = new RegExp(`USDC on Base \\(eip155:8453\\) to the wallet ${ADDRESS}.* 0\\.000198 USDC`);

type Way = typeof CARD | typeof PREPAID | typeof CHAIN;
const refused = (details: object | null, [topUpUrl, wallet]: Way, message = 'Its own words.') =>
  serviceError(
    { status: 402, code: 'PAYMENT_REQUIRED', message, details: details as never, traceId: '', retryAfterSeconds: null },
    topUpUrl,
    wallet,
  );

const SHORT = { priceMicroUsd: 198, balanceMicroUsd: 100 };
const OF_MONEY: readonly [details: object, way: Way, problem: RegExp, remedy: RegExp][] = [
  [{ reason: 'no_account', ...SHORT }, CARD, /0\.000098 USD is missing/, /speechgate top-up/],
  [{ reason: 'insufficient_funds', ...SHORT }, CARD, /0\.000098 USD is missing/, /speechgate top-up/],
  [{ reason: 'unknown_account', ...SHORT }, CARD, /This credit account does not exist/, /speechgate top-up/],
  [{ reason: 'account_indebted', ...SHORT }, CARD, /in debt/, /speechgate top-up/],
  [{ reason: 'insufficient_funds', ...SHORT }, PREPAID, /0\.000098 USD is missing/, /speechgate deposit 1\.00/],
  [
    { reason: 'insufficient_funds', priceMicroUsd: 2_500_000, balanceMicroUsd: 1 },
    PREPAID,
    /2\.499999 USD/,
    /deposit 2\.499999/,
  ],
  [{ reason: 'never_deposited', ...SHORT }, PREPAID, /0\.000098 USD is missing/, /speechgate deposit 1\.00/],
  [{ error: 'insufficient_funds' }, CHAIN, /Insufficient funds/, AT_WALLET],
  [{ error: 'invalid_exact_evm_insufficient_balance' }, CHAIN, /Insufficient funds/, AT_WALLET],
];
const OF_OTHERS: readonly [details: object | null, way: Way][] = [
  [{ reason: 'account_frozen', priceMicroUsd: 198, balanceMicroUsd: 5_000_000 }, CARD],
  [{ reason: 'constructor' }, CARD],
  [null, PREPAID],
  [{ reason: 'account_frozen' }, PREPAID],
  [{ error: 'invalid_signature' }, CHAIN],
  [{ error: 'accepted_is_no_offer' }, CHAIN],
];

async function told(error: Error) {
  const { content } = await toResult(() => Promise.reject(error));
  const failed = await paid(Promise.reject(error), { node: undefined }).catch((thrown) => failureOf(thrown));
  const { type, message } = toApiError(error, false);
  return { command: failed, bridge: { type, message }, mcp: (content[0] as { text: string }).text };
}

for (const [details, way, problem, remedy] of OF_MONEY) {
  test(`${JSON.stringify(details)} tells how to add money in every program`, async (t) => {
    const { command, bridge, mcp } = await told(refused(details, way));
    for (const message of [command.message, bridge.message, mcp]) {
      t.match(message, problem);
      t.match(message, remedy);
      t.match(message, /You were not charged|Nothing was charged/);
    }
    t.strictSame([command.exit, bridge.type], [3, 'insufficient_quota']);
    for (const message of [bridge.message, mcp]) t.ok(!message.includes('secret'), 'the bearer id stays here');
  });
}

const USED = { spentMicroUsd: 396n, reservedMicroUsd: 594n, reservedUntil: new Date('2026-11-29T02:10:30.000Z') };
const SPLIT =
  /0\.000396 USD is spent, 0\.000594 USD is reserved for purchases that may still be charged, those with a signature until 2026-11-29T02:10:30Z\./;
const UNCONFIRMED = /0\.000990 USD was signed for purchases that the service reports as not charged\./;
const OVER_CAPS = [
  ['client', USED, SPLIT, /--max-total\b/],
  ['day', USED, SPLIT, /--max-per-day\b/],
  ['total', USED, SPLIT, /--max-total\b/],
  ['unconfirmed', { unconfirmedMicroUsd: 990n }, UNCONFIRMED, /--max-per-day or --max-total\b/],
  ['call', {}, /0\.001000/, /--max-per-call\b/],
] as const;

for (const [scope, used, split, option] of OVER_CAPS) {
  test(`over the cap ${scope}: every program tells what is used and how to raise it`, async (t) => {
    const amounts = { limitMicroUsd: 1000n, leftMicroUsd: 10n, wantedMicroUsd: 1198n };
    const { command, bridge, mcp } = await told(new OverCapError({ scope, ...amounts, used }));
    for (const message of [command.message, bridge.message, mcp]) {
      t.match(message, /0\.001198/);
      t.match(message, split);
      t.match(message, option);
      t.match(message, /speechgate (bridge or )?connect/);
      t.match(message, /You were not charged|Nothing was signed/);
    }
    t.strictSame([command.exit, bridge.type], [4, 'insufficient_quota']);
  });
}

test('other refusals are told in the words of the service', async (t) => {
  for (const [details, way] of OF_OTHERS) {
    const { command, bridge, mcp } = await told(refused(details, way));
    for (const message of [command.message, bridge.message, mcp]) {
      t.match(message, /Its own words\./);
      t.notMatch(message, /nsufficient|top-up|deposit|Send USDC|Retry/);
    }
    t.equal(command.exit, 1);
    t.not(bridge.type, 'insufficient_quota');
  }
});

test('an unknown account is told in the words of the service, without a hint at voices', async (t) => {
  for (const field of ['accountId', 'address']) {
    const message = 'This address has no account. Deposit at POST /x402/deposit to create one.';
    const fault = { status: 404, code: 'NOT_FOUND', message, details: { field }, traceId: '', retryAfterSeconds: null };
    const { command, bridge, mcp } = await told(serviceError(fault));
    for (const said of [command.message, bridge.message, mcp]) {
      t.match(said, /has no account\./);
      t.notMatch(said, /voice|model/);
    }
  }
});
