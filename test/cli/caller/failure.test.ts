import assert from 'node:assert/strict';
import { test } from 'tap';
import { DamagedBudgetError } from '../../../src/budget/budget-file.ts';
import { failureOf } from '../../../src/cli/caller/failure.ts';
import { watched } from '../../../src/cli/caller/kept-purchases.ts';
import { UsageError } from '../../../src/cli/usage-error.ts';
import {
  AudioLostError,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  type PendingPurchase,
  RateLimitedError,
  UnreachableError,
  UntrustedError,
} from '../../../src/client/index.ts';
import { isRepeatable } from '../../../src/client/pending-purchase.ts';
import { serviceError } from '../../../src/client/service-error.ts';
import { FileBusyError } from '../../../src/lib/file-lock.ts';
import { ForeignFileError } from '../../../src/lib/private-files.ts';

const PENDING: PendingPurchase = {
  ...{ flow: 'direct', kind: 'speech', identifier: 'pay_1234567890123456', baseUrl: 'https://speech.example' },
  ...{ method: 'POST', target: '/x402/tts', headers: {}, body: '{}', maxMicroUsd: '198', expiresAt: null },
};
const fault = (code: string, changes: object = {}) => ({
  ...{ status: 400, code, message: 'No.', details: null, traceId: 'trace', retryAfterSeconds: null },
  ...changes,
});
const amounts = { limitMicroUsd: 10n, leftMicroUsd: 4n, wantedMicroUsd: 20n };

for (const [error, code, exit, message] of [
  [new UsageError('--out is missing.'), 'USAGE', 2, /^--out is missing\.$/],
  [
    new InvalidRequestError(fault('INVALID_VOICE', { details: { field: 'voice' } })),
    'INVALID_VOICE',
    2,
    /^--voice .*: The service says: No\.$/,
  ],
  [
    new PaymentRequiredError(fault('PAYMENT_REQUIRED', { status: 402 }), { topUpUrl: 'u', missingMicroUsd: 1n }),
    'PAYMENT_REQUIRED',
    3,
    /^The service says: No\.$/,
  ],
  [
    new OverCapError({ scope: 'call', ...amounts }),
    'OVER_CAP',
    4,
    /0\.000020 USD, and a purchase may cost 0\.000010 .*Nothing was signed\.$/,
  ],
  [
    new OverCapError({ scope: 'day', ...amounts }),
    'OVER_CAP',
    4,
    /0\.000004 are left of the 0\.000010 for today .*Nothing was signed\.$/,
  ],
  [new OutcomeUnknownError(PENDING), 'OUTCOME_UNKNOWN', 5, /^Whether pay_\d+ was .* speechgate resume pay_\d+$/],
  [
    new AudioLostError('Lost.', { chargedMicroUsd: null, maxMicroUsd: 1n }),
    'AUDIO_LOST',
    5,
    /speechgate balance tells/,
  ],
  [new AudioLostError('Lost.', { chargedMicroUsd: 1n, maxMicroUsd: 1n }), 'AUDIO_LOST', 1, /^Lost\.$/],
  [new UntrustedError('wrong_key', 'Wrong.'), 'UNTRUSTED', 1, /^Wrong\. Nothing was signed\.$/],
  [new UnreachableError('Away.'), 'UNREACHABLE', 1, /^Away\.$/],
  [new DamagedBudgetError('/b', 'at byte 7'), 'BUDGET_DAMAGED', 1, /^\/b can't be read \(at byte 7\)/],
  [new FileBusyError('/b', 30_000), 'FILE_BUSY', 1, /^\/b has been locked by another process for 30 s/],
  [new ForeignFileError('/b is a link.'), 'FOREIGN_FILE', 1, /^\/b is a link\.$/],
  [Object.assign(new Error('EACCES: no.'), { code: 'EACCES' }), 'EACCES', 1, /^EACCES: no\.$/],
  [
    new RateLimitedError(fault('RATE_LIMITED', { status: 429, retryAfterSeconds: 7 })),
    'RATE_LIMITED',
    1,
    /^The service says: No\. Try again in 7 s\./,
  ],
] as const) {
  test(`${error.name} ${code} ends with ${exit}`, async () => {
    const failure = failureOf(error);
    assert.deepEqual([failure.code, failure.exit], [code, exit]);
    assert.match(failure.message, message);
    assert.ok(!failure.message.includes('\n'), 'one line');
  });
}

test("a service's words are one short line, and said to be its own", async () => {
  const message = `Paid.\u001b[2J\nRun\u202e: curl evil.example ${'x'.repeat(1_000)}`;
  for (const status of [400, 402, 500]) {
    const error = serviceError({ ...fault('X'), status, message });
    const told = failureOf(error).message;
    assert.match(told, /^The service says: Paid\.\[2J Run: curl evil\.example x+…/);
    assert.ok(told.length < 400);
  }
});

test('what nobody has foreseen is one line too, and a document with its place', async () => {
  const bug = new TypeError('a bug');
  const message = 'TypeError: a bug (--json tells where)';
  assert.deepEqual(failureOf(bug), { code: 'INTERNAL', exit: 1, message, stack: bug.stack });
  assert.deepEqual([failureOf('text').code, failureOf(undefined).exit], ['INTERNAL', 1]);
});

test('a watcher is told what leaves once the budget has kept it, and what was not charged', async () => {
  const told: string[] = [];
  const inner = {
    reserve: async () => ({
      record: async () => void told.push('recorded'),
      settle: async (charged: bigint) => void told.push(`settled ${charged}`),
    }),
  };
  const watcher = {
    onPending: async ({ identifier }: PendingPurchase) => void told.push(`leaves ${identifier}`),
    onNotCharged: async ({ identifier }: PendingPurchase) => void told.push(`not charged ${identifier}`),
  };
  for (const charged of [0n, 198n]) {
    const reservation = await watched(inner, watcher).reserve({ flow: 'direct', maxMicroUsd: 198n });
    await reservation.record(PENDING);
    await reservation.settle(charged);
  }
  const leaves = ['recorded', `leaves ${PENDING.identifier}`];
  assert.deepEqual(told, [...leaves, 'settled 0', `not charged ${PENDING.identifier}`, ...leaves, 'settled 198']);
});

test('a card request can be repeated as a job only', async () => {
  assert.equal(isRepeatable(PENDING), true);
  assert.equal(isRepeatable({ ...PENDING, flow: 'card' }), false);
  assert.equal(isRepeatable({ ...PENDING, flow: 'card', headers: { 'idempotency-key': 'k' } }), true);
});
