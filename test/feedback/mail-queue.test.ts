import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { deliverFeedback } from '../../src/feedback/deliver.ts';
import { enqueueMail, requeueLostMail } from '../../src/feedback/outbox.ts';
import { give } from '../support/feedback.ts';
import { until } from '../support/until.ts';
import { viemWallet } from '../support/wallet.ts';
import { entries, isMailed, start } from './mailing.ts';

const PARTIES = {
  serviceName: 'speechgate',
  from: { name: '', address: 'from@speech.example' },
  to: [{ name: '', address: 'to@speech.example' }],
};

test('feedback that was mailed or does not exist is not mailed again', async (t) => {
  const { gateway, server } = await start(t);
  const { json } = await give(gateway, viemWallet());
  await until(() => isMailed(gateway, json.feedbackId));
  await enqueueMail(gateway.db, json.feedbackId);
  await enqueueMail(gateway.db, randomUUID());
  await until(async () => (await entries(gateway)).length === 0);
  t.equal(server.mails.length, 1);
  t.equal(await requeueLostMail(gateway.db), 0);
});

test('two workers never mail the same feedback', async (t) => {
  const { gateway } = await start(t, { worker: false });
  const { json } = await give(gateway, viemWallet());
  const { signal } = new AbortController();
  let finish = () => {};
  let begun = () => {};
  const hasBegun = new Promise<void>((resolve) => (begun = resolve));
  const sent: string[] = [];
  const slow = async ({ messageId }: { messageId?: string | undefined }) => {
    begun();
    await new Promise<void>((resolve) => (finish = resolve));
    sent.push(messageId ?? '');
  };
  const first = deliverFeedback(gateway.db, json.feedbackId, PARTIES, slow, signal);
  await hasBegun;
  const send = async ({ messageId }: { messageId?: string | undefined }) => void sent.push(messageId ?? '');
  await t.rejects(deliverFeedback(gateway.db, json.feedbackId, PARTIES, send, signal), { code: '55P03' });
  finish();
  await first;
  await deliverFeedback(gateway.db, json.feedbackId, PARTIES, send, signal);
  t.equal(sent.length, 1);
});

test('lost mail is queued again, but not mail in progress or out of attempts', async (t) => {
  const { gateway, server } = await start(t, { worker: false });
  const { db } = gateway;
  const { json } = await give(gateway, viemWallet());
  t.equal(await requeueLostMail(db), 0, 'it waits in the queue');

  const take = (seconds: number) =>
    sql`
    update graphile_worker._private_jobs set locked_by = 'dead', locked_at = now() - make_interval(secs => ${seconds})
    where key is not null`.execute(db);
  await take(20);
  t.equal(await requeueLostMail(db), 0, 'it was taken a moment ago');
  await take(40);
  await db.transaction().execute(async (trx) => {
    await trx.selectFrom('feedback').select('id').where('id', '=', json.feedbackId).forUpdate().execute();
    assert.equal(await requeueLostMail(db), 0, 'the record is locked: its mail is being handed over');
  });
  t.equal(await requeueLostMail(db), 1, 'taken by a process that is gone');

  await sql`delete from graphile_worker._private_jobs`.execute(db);
  t.equal(await requeueLostMail(db), 1, 'no entry at all');
  await sql`update graphile_worker._private_jobs set attempts = max_attempts`.execute(db);
  t.equal(await requeueLostMail(db), 0, 'an operator has to look');

  await sql`delete from graphile_worker._private_jobs`.execute(db);
  t.equal(await requeueLostMail(db), 1);
  gateway.app.mailer?.start();
  await until(() => isMailed(gateway, json.feedbackId));
  t.equal(server.mails.length, 1);
});

test('record and queue entry are written together or not at all', async (t) => {
  const { gateway } = await start(t, { worker: false });
  await sql`alter table graphile_worker._private_jobs add constraint full_up check (false) not valid`.execute(
    gateway.db,
  );
  const reply = await give(gateway, viemWallet());
  t.equal(reply.status, 500);
  t.strictSame(await gateway.db.selectFrom('feedback').select('id').execute(), []);
  await sql`alter table graphile_worker._private_jobs drop constraint full_up`.execute(gateway.db);

  await sql`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$`.execute(
    gateway.db,
  );
  await sql`
    create constraint trigger at_commit after insert on feedback deferrable initially deferred
    for each row execute function refuse()`.execute(gateway.db);
  t.equal((await give(gateway, viemWallet())).status, 500);
  t.strictSame(await entries(gateway), []);
});
