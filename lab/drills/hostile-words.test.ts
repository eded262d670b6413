import { sql } from 'kysely';
import { test } from 'tap';
import { pauseFlows } from '../../src/ledger/pauses.ts';
import { printable } from '../../src/lib/printable.ts';
import { say } from '../../test/journeys/card.ts';
import { open, purchase, setUp } from '../../test/reconcile/open-purchases.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { unguarded } from '../../test/support/unguarded.ts';

/** Clears the screen, sets a colour by one code unit, turns the direction of text, and begins a line of its own. */
const HOSTILE = 'x\u001b[2J\u009b31m\u202eysp\u2028\nholds  forged';
const OBEYED = /[^\n\P{C}]|[\u2028\u2029]/u;

test("no operator command prints control characters from others' text", async (t) => {
  const { checkout, gateway } = await setUp(t);
  const { db } = gateway;
  const session = await open(gateway);
  await checkout.pay(session);
  t.equal((await gateway.call(`/top-up/complete?session_id=${session}`)).status, 200);
  const { account_id: account } = await purchase(gateway, session);
  const spoken = await gateway.call('/tts', say(account));
  await checkout.refund({ session, amountCents: 200 });
  checkout.rewrite = (path, answer) => {
    const body = JSON.parse(answer);
    for (const each of [body, ...(body.data ?? [])]) {
      if (path.startsWith('/v1/refunds') && 'currency' in each) each.currency = HOSTILE;
      if ('reporting_category' in each) each.reporting_category = HOSTILE;
    }
    return JSON.stringify(body);
  };
  await pauseFlows(db, ['jobs'], { operator: HOSTILE, reason: HOSTILE });
  await unguarded(db, async (trx) => {
    await sql`update top_up set payment_intent_id = payment_intent_id || ${HOSTILE}`.execute(trx);
    await sql`
      insert into operator_action (operator, action, subject, reason, detail)
      values (${HOSTILE}, 'freeze', ${account}, ${HOSTILE}, ${JSON.stringify({ of: HOSTILE })})`.execute(trx);
    await sql`
      insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                valid_before, head_block, refusal, trace_id, settling_at, failed_at)
      values ('refused', 'one', '', 'eip155:1', '0xa', '0xb', '0xc', '0xd', 1, 1, 1, ${HOSTILE},
              ${spoken.headers.get('x-trace-id')}::uuid, now(), now())`.execute(trx);
  });
  const env = {
    DATABASE_URL: gateway.databaseUrl,
    ...{ STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase },
  };
  const today = new Date().toISOString().slice(0, 10);
  for (const [command, says] of [
    [['reconcile'], true],
    [['accounts', 'show', account.slice(0, 8)], true],
    [['accounts', 'show', account.slice(0, 8), '--json'], true],
    [['accounts', 'find', '--session', session], false],
    [['accounts', 'find', '--session', session, '--json'], true],
    [['accounts', 'find', '--trace', HOSTILE], true],
    [['report', '--from', today], true],
    [['report', '--from', today, '--json'], true],
    [['report', '--from', today, '--csv'], false],
    [['payments'], true],
    [['payments', '--json'], true],
    [['paused'], true],
    [['paused', '--json'], true],
    [['trace', String(spoken.headers.get('x-trace-id'))], true],
    [['audit', '--external'], true],
    [['admin', 'resume', 'jobs', '--reason', HOSTILE, '--operator', HOSTILE, '--yes'], false],
  ] as const) {
    const { output } = await speechgate(env, ...command);
    const seen = printable(`${command.join(' ')}: ${output}`);
    t.ok(!OBEYED.test(output), seen);
    t.notMatch(output, /^holds {2}forged/m, seen);
    if (says) t.match(output, /\\u202eysp/, seen);
  }
});
