/** The numbers that callers and contributors read in documents are those of the code, where each stands once. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { MIN_TOP_UP_CENTS } from '../../src/config/card-settings.ts';
import { readConfig } from '../../src/config/config.ts';
import { MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH } from '../../src/config/speech-limits.ts';
import { ASYNC_TEXT_LENGTH } from '../../src/jobs/job.ts';
import { NONCE_RETENTION_HOURS } from '../../src/ledger/wallets.ts';
import { PREPAID_AUDIO_SECONDS } from '../../src/payments/prepaid/prepaid-balance.ts';
import { MAX_TIMEOUT_SECONDS } from '../../src/payments/x402/challenge.ts';
import { PREPAID } from '../../src/payments/x402/prepaid-terms.ts';
import { CONFIRMATIONS } from '../../src/payments/x402/transfer-proof.ts';
import { projectFile } from '../support/project.ts';

const read = readConfig({ DATABASE_URL: 'postgres://db.example/speechgate' });
const { rateLimit, edgeRateLimitMax } = read.outcome === 'read' ? read.config : assert.fail('the defaults are invalid');
const usd = (microUsd: number): string => (microUsd / 1_000_000).toFixed(2).replace(/\.00$/, '');

/** A document, how a sentence of it goes, and what stands where the sentence has …, in turn. */
const SENTENCES: readonly [document: string, sentence: string, ...values: (number | string)[]][] = [
  ['docs/api.md', 'by `POST`, … by `GET`', MAX_QUERY_TEXT_LENGTH],
  ['docs/api.md', 'Deposit … to … USD', ...[PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd].map(usd)],
  ['docs/api.md', 'waits up to … s for … confirmations', PREPAID.depositTimeoutSeconds, CONFIRMATIONS],
  ['docs/api.md', '`expiry` is at most … s ahead', PREPAID.signatureTtlSeconds],
  ['docs/api.md', 'past, or over … s ahead', PREPAID.signatureTtlSeconds],
  ['docs/api.md', 'fetch `details.audio` within … minutes', PREPAID_AUDIO_SECONDS / 60],
  ['docs/api.md', '| requests a minute | … per card account', rateLimit.max],
  ['docs/api.md', 'per audio link; … of any kind', edgeRateLimitMax],
  ['docs/rules.md', 'GET text over … characters', MAX_QUERY_TEXT_LENGTH],
  ['docs/rules.md', "Today's cap of … is below", MAX_TEXT_LENGTH],
  ['docs/rules.md', 'From … characters a request becomes', ASYNC_TEXT_LENGTH],
  ['docs/rules.md', 'or below … cents', MIN_TOP_UP_CENTS],
  ['docs/rules.md', 'maxTimeoutSeconds …,', MAX_TIMEOUT_SECONDS],
  ['docs/rules.md', 'expired or over … s ahead', PREPAID.signatureTtlSeconds],
  ['docs/rules.md', 'A spent nonce is kept at least … h', NONCE_RETENTION_HOURS],
  ['docs/rules.md', 'has … confirmations. After … s', CONFIRMATIONS, PREPAID.depositTimeoutSeconds],
  ['docs/rules.md', 'Audio is kept for … minutes', PREPAID_AUDIO_SECONDS / 60],
];

for (const [document, sentence, ...values] of SENTENCES) {
  test(`${document}: ${sentence}`, async () => {
    const text = (await readFile(projectFile(document), 'utf8')).replaceAll(/\s+/g, ' ');
    const parts = sentence.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    const [, ...told] = new RegExp(parts.join('([\\d.,]*\\d)')).exec(text) ?? [];
    assert.deepEqual(told, values.map(String));
  });
}
