/** A process that dies while feedback is taken or mailed: another one mails it, and it is stored once. */
import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { signedFeedback, submit } from '../support/feedback.ts';
import { BASE_URL, type Gateway, send } from '../support/gateway.ts';
import { killCommand, killed, startVictim } from '../support/kill.ts';
import { type Kill, killCases } from '../support/kills.ts';
import { runTurn } from '../support/reconcile.ts';
import { until } from '../support/until.ts';
import { viemWallet } from '../support/wallet.ts';
import { entries, mailEnv, start } from './mailing.ts';

const FEEDBACK_SECRET = 'the secret of the gateway under test';

/** Sends feedback to a gateway that dies at this step, and mails too; the other one's mailer stands still. */
async function sendToVictim(t: Test, point: Kill) {
  const { server, gateway } = await start(t, { worker: false });
  const { databaseUrl } = gateway;
  const env = { ...mailEnv(server.url), BASE_URL, DATABASE_URL: databaseUrl, FEEDBACK_SECRET };
  const victim = await startVictim(t, point, { ...env, STRIPE_SECRET_KEY: 'sk_test_feedback' });
  const signed = await signedFeedback(gateway, viemWallet());
  await assert.rejects(send(victim.url, '/feedback', { method: 'POST', json: signed }));
  await killed(victim.child);
  return { server, gateway, signed };
}

/** A mailer dies at this step of feedback that was stored before. */
async function killMailer(t: Test, point: Kill) {
  const { server, gateway } = await start(t, { worker: false });
  const signed = await signedFeedback(gateway, viemWallet());
  assert.equal((await submit(gateway, signed)).status, 201);
  const env = { ...mailEnv(server.url), DATABASE_URL: gateway.databaseUrl };
  await killCommand(t, point, { program: 'test/support/mailer-process.ts', env });
  return { server, gateway, signed };
}

const stored = async ({ db }: Gateway) =>
  (await db.selectFrom('feedback').select('mailed_at').execute()).map(({ mailed_at }) => mailed_at !== null);

/** Mails as another process does, half an hour later. */
async function mail(gateway: Gateway): Promise<void> {
  await sql`update graphile_worker._private_jobs set locked_at = now() - interval '30 minutes'
            where locked_at is not null`.execute(gateway.db);
  gateway.app.mailer?.start();
  // A turn skips what the server still holds for the dead process.
  await until(async () => {
    assert.equal((await runTurn(gateway, 'lost_mail')).outcome, 'done');
    return (await stored(gateway))[0] === true;
  });
}

/** @param mails that arrive in all */
const isMailedAfter = (point: Kill, mails: number, die: typeof killMailer) => async (t: Test) => {
  const { server, gateway, signed } = await die(t, point);
  await mail(gateway);
  assert.equal(server.mails.length, mails);
  assert.equal(new Set(server.mails.map((each) => each.header('message-id'))).size, 1);
  assert.equal((await submit(gateway, signed)).status, 409, 'the challenge is used up');
  assert.deepEqual(await stored(gateway), [true]);
};

const CASES = killCases<'test/feedback/kill.test.ts', (t: Test) => Promise<void>>('test/feedback/kill.test.ts', {
  'feedback written': async (t) => {
    const { server, gateway, signed } = await sendToVictim(t, 'feedback written');
    assert.deepEqual([await stored(gateway), await entries(gateway)], [[], []]);
    assert.equal((await submit(gateway, signed)).status, 201, 'its challenge is still good');
    await mail(gateway);
    assert.equal(server.mails.length, 1);
  },
  'feedback stored': isMailedAfter('feedback stored', 1, sendToVictim),
  'mail claimed': isMailedAfter('mail claimed', 1, killMailer),
  // Nobody can tell whether the server has taken it: the second one has the same Message-ID.
  'mail sent': isMailedAfter('mail sent', 2, killMailer),
  'mail recorded': isMailedAfter('mail recorded', 1, killMailer),
});

for (const [point, prove] of CASES) {
  test(`kill -9 of feedback at "${point}": it is stored once and mailed`, prove);
}
