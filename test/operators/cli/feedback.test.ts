import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../../src/db/database.ts';
import { testDatabase } from '../../support/database.ts';
import { operatorCommand } from '../../support/operator-command.ts';

const WALLET = `0x${'ab'.repeat(20)}`;
/** All that a terminal obeys or shows elsewhere. */
const HOSTILE =
  'a\r\nb\tc\u001b[2J\u001b]0;title\u0007\u007f\u0085\u009b31m\u2028\u2029\u202e\u2066\u200e\ufeff\u00ad\ue000\u{e0041}\\u0041';
const UNSAFE =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Co}\p{Cs}\u00ad\u200b-\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/u;

async function open(t: Test) {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const list = async (...args: string[]) => {
    const { code, out, output } = await operatorCommand({ DATABASE_URL: url }, 'feedback', ...args);
    assert.equal(code, 0, output);
    return out;
  };
  return { db, list };
}

const insert = (db: Database, message: string, changes: object = {}) =>
  db
    .insertInto('feedback')
    .values({
      nonce: randomUUID(),
      wallet: WALLET,
      category: 'bug',
      message,
      details: JSON.stringify({ agent: message }),
      signing_message: 'signed',
      signature: '0x00',
      trace_id: randomUUID(),
      received_at: '2030-01-01T00:00:00Z',
      notification: 'queued',
      ...changes,
    })
    .returningAll()
    .executeTakeFirstOrThrow();

test('the table prints one line per record, whatever the sender wrote', async (t) => {
  const { db, list } = await open(t);
  const waiting = await insert(db, HOSTILE);
  const off = await insert(db, `👩🏽‍🚀 ${'x'.repeat(4000)}`, {
    notification: 'not_configured',
    received_at: '2030-01-02T00:00:00Z',
  });
  const mailed = await insert(db, 'short', { received_at: '2030-01-03T00:00:00Z', mailed_at: '2030-01-03T00:00:05Z' });
  const [head = '', ...lines] = (await list()).trimEnd().split('\n');
  t.match(head, /^received +id +category +wallet +mailed +message *$/);
  t.equal(lines.length, 3);
  for (const [index, [row, mail]] of (
    [
      [waiting, 'waiting'],
      [off, 'not configured'],
      [mailed, '2030-01-03T00:00:05.000Z'],
    ] as const
  ).entries()) {
    const line = lines[index] ?? '';
    for (const part of [row.received_at.toISOString(), row.id, 'bug', WALLET, mail]) t.ok(line.includes(part), part);
    t.notMatch(line, UNSAFE);
    t.ok(line.length < 250, 'a long message is cut');
  }
  t.match(lines[0] ?? '', /a\\u000d\\nb\\u0009c\\u001b\[2J/);
  t.match(lines[1] ?? '', /👩🏽‍🚀 x+…$/u, 'emoji stay whole');
});

test('--json exports every record, oldest first, as JSON safe for a terminal', async (t) => {
  const { db, list } = await open(t);
  t.strictSame(JSON.parse(await list('--json')), []);
  const row = await insert(db, HOSTILE);
  const text = await list('--json');
  t.notMatch(text.replaceAll('\n', ''), UNSAFE);
  t.strictSame(JSON.parse(text), [
    {
      feedbackId: row.id,
      receivedAt: '2030-01-01T00:00:00.000Z',
      wallet: WALLET,
      category: 'bug',
      message: HOSTILE,
      details: { agent: HOSTILE },
      traceId: row.trace_id,
      signingMessage: 'signed',
      signature: '0x00',
      notification: 'queued',
      mailedAt: null,
    },
  ]);
  await sql`
    insert into feedback (nonce, wallet, category, message, signing_message, signature, trace_id, received_at, notification)
    select gen_random_uuid(), ${WALLET}, 'other', n::text, '', '', gen_random_uuid(),
           timestamptz '2031-01-01' + (n / 3) * interval '1 microsecond', 'queued'
    from generate_series(1, 999) n`.execute(db);
  const records: { feedbackId: string; message: string }[] = JSON.parse(await list('--json'));
  t.equal(new Set(records.map(({ feedbackId }) => feedbackId)).size, 1000, 'every record once, also of one moment');
  const moments = records.slice(1).map(({ message }) => Math.floor(Number(message) / 3));
  t.strictSame(
    moments,
    [...moments].sort((a, b) => a - b),
  );
});
