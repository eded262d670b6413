import assert from 'node:assert/strict';
import { test } from 'tap';
import { fuzz } from '../../lab/fuzz/fuzz.ts';
import { assertSound } from '../../lab/fuzz/report.ts';
import { testChain } from '../../test/support/chain.ts';

const REQUESTS = 3000;
const { chain, skip } = await testChain();

test(`${REQUESTS} random requests cause no undeclared response, 5xx, hang or leak`, {
  skip,
}, async (t) => {
  const result = await fuzz(t, chain, { requests: REQUESTS, seed: 1, progress: (message) => t.comment(message) });
  assertSound(result);
  const { reached, statuses } = result.figures;
  for (const status of [429, 431]) assert.ok((statuses[status] ?? 0) > 0, `${status} was never reached`);
  for (const pair of [
    ...['createSpeech 200', 'createSpeech 202', 'createSpeech 400', 'createSpeech 402', 'startTopUp 303'],
    ...['createX402Speech 200', 'createX402Speech 402', 'createX402Speech 409', 'createDeposit 200', 'getJobAudio 200'],
    ...['submitFeedback 201', 'edge 400', 'edge 404', 'edge 405'],
  ]) {
    assert.ok((reached[pair] ?? 0) > 0, `${pair} was never reached`);
  }
});
