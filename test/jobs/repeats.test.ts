import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { later } from '../support/jobs.ts';
import { entries, FUNDS, jobs, PRICE, start } from './accepting.ts';

test('R17: the same key with the same request returns the same job, and debits nothing again', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const first = await later(gateway, account, { key: 'order 7' });
  assert.equal(first.status, 202);
  // The same request in other words: defaults spelt out, the text untrimmed, the account's id in capitals.
  const same = [
    await later(gateway, account, { key: 'order 7' }),
    await later(gateway, account, { key: 'order 7', text: ' Hello world ' }),
    await later(gateway, account, {
      key: 'order 7',
      json: { model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: 1, storeAudio: true },
    }),
    await later(gateway, account.toUpperCase(), { key: 'order 7' }),
    await gateway.call('/tts?async=true&text=Hello%20world', {
      headers: { 'x-credit-account': account, 'idempotency-key': 'order 7' },
    }),
  ];
  for (const reply of same) {
    assert.equal(reply.status, 202);
    assert.equal(reply.json.jobId, first.json.jobId);
    assert.equal(reply.json.traceId, first.json.traceId, 'the trace is that of the request that made the job');
    assert.equal(reply.headers.get('x-credit-balance'), String(FUNDS - PRICE));
  }
  assert.equal((await jobs(gateway)).length, 1);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R17: the same key with another text, model, voice, speed or storeAudio is 400', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  const others = [
    { text: 'Hello world!' },
    { json: { model: 'provider-a/tts-1-hd' } },
    { json: { voice: 'provider-a_nova' } },
    { json: { speed: 1.01 } },
    { json: { storeAudio: false } },
    { query: '&storeAudio=false' },
  ];
  for (const other of others) {
    const reply = await later(gateway, account, { key: 'k', ...other });
    assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], JSON.stringify(other));
    assert.equal(reply.json.error.details.field, 'idempotency-key');
  }
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
});

test('R17: a key belongs to its account; without one, and under another one, each request is a job', async (t) => {
  const gateway = await start(t);
  const [one, two] = [await gateway.fund(500), await gateway.fund(500)];
  const replies = [
    await later(gateway, one, { key: 'k' }),
    await later(gateway, two, { key: 'k' }),
    await later(gateway, two, { key: 'K' }),
    await later(gateway, two, { key: 'k'.repeat(512) }),
    await later(gateway, two),
    await later(gateway, two),
  ];
  assert.equal(new Set(replies.map((reply) => reply.json.jobId)).size, replies.length);
  const rows = await jobs(gateway);
  const hashes = rows.map((row) => row.idempotency_key?.toString('hex')).filter((hash) => hash !== undefined);
  assert.equal(new Set(hashes).size, 4, 'equal keys of two accounts have different hashes');
  for (const hash of hashes) assert.match(hash, /^[0-9a-f]{64}$/);
});

test('R17: on a synchronous request the key is ignored', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const call = { method: 'POST', headers: { 'x-credit-account': account, 'idempotency-key': 'k' } };
  const accepted = await gateway.call('/tts?async=true', { ...call, json: { text: 'one' } });
  assert.equal(accepted.status, 202);
  const reply = await gateway.call('/tts?async=false', { ...call, json: { text: 'two' } });
  assert.equal(reply.status, 503, 'it was sent to the provider, which is not there');
});

test('R17: twenty equal requests at once are one job with one hold', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const replies = await Promise.all(Array.from({ length: 20 }, () => later(gateway, account, { key: 'k' })));
  assert.deepEqual([...new Set(replies.map((reply) => reply.status))], [202]);
  assert.equal(new Set(replies.map((reply) => reply.json.jobId)).size, 1);
  assert.equal((await jobs(gateway)).length, 1);
  assert.equal((await entries(gateway)).length, 1);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R17: of unequal requests at once under one key, one is a job and the others are refused', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const replies = await Promise.all(
    Array.from({ length: 10 }, (_, index) => later(gateway, account, { key: 'k', text: `text ${index}` })),
  );
  const statuses = replies.map((reply) => reply.status).sort();
  assert.deepEqual(statuses, [202, ...Array.from({ length: 9 }, () => 400)]);
  assert.equal((await jobs(gateway)).length, 1);
  assert.equal(await gateway.balance(account), FUNDS - 6n * 18n);
});

test('a repeat finds its job also when the account is empty by then', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const first = await later(gateway, account, { key: 'k' });
  const balance = await gateway.balance(account);
  await gateway.db.updateTable('account').set({ balance_micro_usd: 0n }).where('id', '=', account).execute();
  const again = await later(gateway, account, { key: 'k' });
  assert.equal(again.status, 202);
  assert.equal(again.json.jobId, first.json.jobId);
  assert.equal(again.headers.get('x-credit-balance'), '0');
  await gateway.db.updateTable('account').set({ balance_micro_usd: balance }).where('id', '=', account).execute();
});

test('R17: the database itself keeps a key from having two jobs', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  const other = await later(gateway, account);
  const [first] = (await jobs(gateway)).filter((row) => row.idempotency_key !== null);
  await assert.rejects(
    gateway.db
      .updateTable('job')
      .set({ idempotency_key: first?.idempotency_key, request_hash: first?.request_hash })
      .where('id', '=', other.json.jobId)
      .execute(),
    /job_idempotency/,
  );
});
