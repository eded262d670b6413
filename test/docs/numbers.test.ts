/** The numbers that the documents tell are those of the code, where each stands once. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { LOCK_TIMEOUT_MS } from '../../src/db/brief-locks.ts';
import { MAX_UNANSWERED, MAX_UNSENT_BYTES } from '../../src/http/connection.ts';
import { CLIENT_STALL_MS, MAX_HELD_BYTES } from '../../src/http/connection-guard.ts';
import { OVERLOAD_BOUNDS } from '../../src/http/overload.ts';
import { ASYNC_TEXT_LENGTH } from '../../src/jobs/asynchronous.ts';
import { DEAD_AFTER_SECONDS } from '../../src/jobs/heartbeat.ts';
import { MAX_EXPIRY_SECONDS, NONCE_RETENTION_HOURS } from '../../src/ledger/wallets.ts';
import { BEAT_MS } from '../../src/queue/queue-worker.ts';
import { type Config, readConfig } from '../../src/settings/config.ts';
import { MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH } from '../../src/speech/limits.ts';
import { MIN_TOP_UP_CENTS } from '../../src/top-up/amount.ts';
import { RANGE_BLOCKS } from '../../src/x402/chain-node.ts';
import { CONFIRMATIONS } from '../../src/x402/confirmations.ts';
import { MAX_TIMEOUT_SECONDS } from '../../src/x402/offer.ts';
import { PREPAID } from '../../src/x402/prepaid-terms.ts';

const SECRET = 'a-secret-of-the-tests-of-32-bytes-or-more';
/** Every flow is on, so that each setting shows in the configuration. */
const ENV = {
  DATABASE_URL: 'postgres://db.example/speechgate',
  SPEECH_BASE_URL: 'https://speech.example/v1',
  STRIPE_SECRET_KEY: 'sk_test_documents',
  X402_PAY_TO: '0xcA11bde05977b3631167028862bE2a173976CA11',
  X402_FACILITATOR_URL: 'https://facilitator.example',
  X402_RPC_URL: 'https://node.example',
  QUOTE_SECRET: SECRET,
  FEEDBACK_SECRET: SECRET,
};
const configOf = (env: NodeJS.ProcessEnv): Config | undefined => {
  const result = readConfig({ ...ENV, ...env });
  return result.outcome === 'read' ? result.config : undefined;
};
const config = configOf({}) ?? assert.fail('the settings of this test are invalid');
const readDocument = (path: string): Promise<string> => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');
const withCommas = (count: number): string => count.toLocaleString('en-US');
const depositUsd = (microUsd: number): string => (microUsd / 1_000_000).toFixed(2).replace(/\.00$/, '');

/** A document, how a sentence of it goes, and what stands where the sentence has …, in turn. */
const SENTENCES: readonly [document: string, sentence: string, ...values: (number | string)[]][] = [
  ['README.md', 'up to … characters, for whom a query', MAX_QUERY_TEXT_LENGTH],
  ['README.md', 'which every gateway also does every … s.', config.reconcileIntervalMs / 1000],
  [
    'README.md',
    'deposits once, from … to … USD',
    ...[PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd].map(depositUsd),
  ],
  [
    'docs/backups.md',
    'a deposit is … to … USD, and a direct payment is the price of a text of at most … characters',
    ...[PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd].map(depositUsd),
    MAX_TEXT_LENGTH,
  ],
  ['docs/backups.md', 'until … s after it was signed', MAX_EXPIRY_SECONDS],
  ['docs/backups.md', 'in ranges of … blocks', String(RANGE_BLOCKS)],
  ['docs/contributing.md', "capture's end isn't known within … s", config.capturePatienceMs / 1000],
  ['docs/operations.md', 'until the database is there again, for up to … s', config.capturePatienceMs / 1000],
  ['docs/operations.md', "doesn't get its lock within … ms", LOCK_TIMEOUT_MS],
  [
    'docs/operations.md',
    'once … wait, the first for … ms, and',
    OVERLOAD_BOUNDS.leastWaiting,
    OVERLOAD_BOUNDS.patienceMs,
  ],
  [
    'docs/operations.md',
    'once … wait, the first for … ms; for',
    ...[OVERLOAD_BOUNDS.leastWaiting / 2, OVERLOAD_BOUNDS.patienceMs / 2],
  ],
  ['docs/operations.md', 'or when … wait;', withCommas(OVERLOAD_BOUNDS.mostWaiting)],
  ['docs/operations.md', '… are at work at a time, and the others begin', OVERLOAD_BOUNDS.leastAtOnce],
  ['docs/operations.md', 'up to … are at work, and only who', OVERLOAD_BOUNDS.mostAtOnce],
  ['docs/operations.md', 'of those that wait there are … at most', withCommas(OVERLOAD_BOUNDS.most)],
  ['docs/operations.md', 'A client that takes nothing for … s while', CLIENT_STALL_MS / 1000],
  ['docs/operations.md', 'occupy more than … MiB together', MAX_HELD_BYTES / 1024 / 1024],
  ['docs/operations.md', 'Of one connection at most … requests', MAX_UNANSWERED],
  ['docs/operations.md', 'none is begun while more than … KiB', MAX_UNSENT_BYTES / 1024],
  ['docs/operations.md', 'tells the database every … s that it lives', BEAT_MS / 1000],
  ['docs/operations.md', 'After … s of silence its jobs', DEAD_AFTER_SECONDS],
  ['docs/operations.md', 'when its exact transfer is … blocks deep', CONFIRMATIONS],
  ['docs/operations.md', 'request waits up to … s for that', PREPAID.depositTimeoutSeconds],
  ['docs/operations.md', 'Nonces are kept for … hours', NONCE_RETENTION_HOURS + 1],
  ['docs/rules.md', 'A spent nonce is kept for … h at least', NONCE_RETENTION_HOURS],
  ['docs/operations.md', 'a signature lives for … minutes', PREPAID.signatureTtlSeconds / 60],
  ['docs/prepaid.md', 'Date.now() / 1000) + …)', PREPAID.signatureTtlSeconds],
  ['docs/prepaid.md', 'past, or more than … s ahead', PREPAID.signatureTtlSeconds],
  ['docs/rules.md', 'GET has 1 to … characters', MAX_QUERY_TEXT_LENGTH],
  ['docs/rules.md', "Today's cap of … lies below", MAX_TEXT_LENGTH],
  ['docs/rules.md', 'From … characters on', ASYNC_TEXT_LENGTH],
  ['docs/rules.md', 'or below … cents', MIN_TOP_UP_CENTS],
  ['docs/rules.md', 'maxTimeoutSeconds …,', MAX_TIMEOUT_SECONDS],
  ['docs/rules.md', 'past or more than … s ahead', PREPAID.signatureTtlSeconds],
  ['docs/rules.md', 'Not there yet after … s', PREPAID.depositTimeoutSeconds],
  ['docs/rules.md', '(payer, payTo, amount), … confirmations deep', CONFIRMATIONS],
];

for (const [document, sentence, ...values] of SENTENCES) {
  test(`${document}: ${sentence}`, async () => {
    const text = (await readDocument(document)).replaceAll(/\s+/g, ' ');
    const parts = sentence.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    const [, ...told] = new RegExp(parts.join('([\\d.,]*\\d)')).exec(text) ?? [];
    assert.deepEqual(told, values.map(String));
  });
}

test('docs/operations.md: who sets a number to the default of the table changes nothing', async () => {
  const [, table = ''] = (await readDocument('docs/operations.md')).split(/^## /m);
  const rows = table.split('\n').map((line) => line.split('|').map((cell) => [...cell.matchAll(/`([^`]+)`/g)]));
  const defaults = rows.flatMap(([, names = [], , values = []]) =>
    names.length === values.length
      ? names.map(([, name], at) => [name as string, values[at]?.[1] as string] as const)
      : [],
  );
  const numbers = defaults.filter(([, value]) => /^\d+$/.test(value));
  assert.ok(numbers.length >= 15);
  for (const [name, value] of numbers) {
    assert.deepEqual(configOf({ [name]: value }), config, name);
    assert.notDeepEqual(configOf({ [name]: String(Number(value) + 1) }), config, `${name} has no effect here`);
  }
});
