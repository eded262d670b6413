import { test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { testChain, wallet } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { testDatabase } from '../support/database.ts';
import { mineSteadily } from '../support/deposit.ts';
import { startMailServer } from '../support/mail-server.ts';
import { FLOWS } from '../support/paid-flows.ts';
import { faultsOf } from '../support/plan-rules.ts';
import { type ExecutedPlan, watchPlans } from '../support/plans.ts';
import { bookDeposit } from '../support/prepaid.ts';
import { startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

test('a database without statistics is read by keys', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const plans: ExecutedPlan[] = [];
  await watchPlans(url, 'force_generic_plan', (plan) => plans.push(plan));
  const checkout = await testCheckout(t);
  const mail = await startMailServer(t);
  const mails = { SMTP_URL: mail.url, FEEDBACK_FROM: 'from@speech.example', FEEDBACK_TO: 'to@speech.example' };
  const gateway = await startX402Gateway(t, chain, { ...checkout.env, ...mails }, { databaseUrl: url, worker: true });
  mineSteadily(t, chain);
  const prepaid = privateKeyToAccount(generatePrivateKey());
  await bookDeposit(gateway.db, prepaid.address.toLowerCase(), 100_000n);
  const payers = { card: await gateway.fund(1000), prepaid, direct: await wallet(chain.client, 1_000_000n), checkout };
  for (const [name, { run }] of Object.entries(FLOWS)) {
    plans.length = 0;
    await run(gateway, payers);
    t.ok(plans.length > 0, name);
    t.strictSame(
      plans.flatMap((plan) => faultsOf(plan).map(({ text }) => `${text}: ${plan.text}`)),
      [],
      name,
    );
  }
});
