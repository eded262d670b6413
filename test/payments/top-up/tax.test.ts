import { test } from 'tap';
import { creditPart } from '../../../src/payments/top-up/processor.ts';
import { startGateway } from '../../support/gateway.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { assertSound, followProcessor, sell, stand } from './refunded.ts';
import { buy, shop } from './shop.ts';

const parts: [cents: number, amountCents: number, taxCents: number, part: number][] = [
  [700, 700, 0, 700],
  [770, 700, 70, 700],
  [385, 700, 70, 350],
  [-770, 700, 70, -700],
  [1, 500, 95, 1],
  [99_999_999, 84_033_612, 15_966_387, 84_033_612],
];
test('of a payment or refund with tax, the share of the amount is credit', async (t) => {
  for (const [cents, amountCents, taxCents, part] of parts) {
    t.equal(creditPart(cents, { amountCents, taxCents }), part, `${cents} of ${amountCents} and ${taxCents}`);
  }
});

test('R16: STRIPE_AUTOMATIC_TAX adds tax at the checkout, which is not credited', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const { account, session } = await sell(gateway, checkout, 700);
  t.equal((await checkout.stripe.checkout.sessions.retrieve(session)).amount_total, 770);
  t.equal(await gateway.balance(account), 7_000_000n);
  await assertSound(gateway, checkout);
});

test('R61: of a refund or dispute with tax, the account pays back the credit only', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const { account, session } = await sell(gateway, checkout, 700);
  await checkout.refund({ session, amountCents: 385 });
  await followProcessor(gateway);
  t.equal(await gateway.balance(account), 3_500_000n);
  const dispute = await checkout.openDispute({ session, amountCents: 385 });
  await followProcessor(gateway);
  t.equal(await gateway.balance(account), 0n);
  await checkout.updateDispute(dispute.id, 'won');
  await followProcessor(gateway);
  t.equal(await gateway.balance(account), 3_500_000n);
  await assertSound(gateway, checkout);
});

test('R61: refunds of all parts of a purchase with tax leave no debt by rounding', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const { account, session } = await sell(gateway, checkout, 500);
  for (const amountCents of [181, 181, 181, 7]) await checkout.refund({ session, amountCents });
  await followProcessor(gateway);
  const { balance, debt } = await stand(gateway, account);
  t.equal(debt, 0);
  t.ok(balance < 4, 'at most a cent of each refund is left');
  await assertSound(gateway, checkout);
});

test('R61: a refund of a purchase that was never credited leaves out the tax too', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const back = await buy(gateway, checkout, { amount: '700' });
  const session = new URL(back, 'http://127.0.0.1').searchParams.get('session_id') ?? '';
  await checkout.refund({ session, amountCents: 385 });
  await followProcessor(gateway);
  const { account_id } = await gateway.db.selectFrom('top_up').select('account_id').executeTakeFirstOrThrow();
  t.equal(await gateway.balance(account_id), 3_500_000n);
  await assertSound(gateway, checkout);
});

test('R16: after lost commits reconcile --since books credit and refund without the tax', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const { account, session } = await sell(gateway, checkout, 700);
  await checkout.refund({ session, amountCents: 385 });
  const restored = await startGateway(t, { ...checkout.env, STRIPE_AUTOMATIC_TAX: 'true' });
  const env = { ...checkout.env, DATABASE_URL: restored.databaseUrl };
  const since = new Date(Date.now() - 3_600_000).toISOString();
  const { code, output } = await operatorCommand(env, 'reconcile', '--since', since);
  t.equal(code, 0, output);
  t.equal(await restored.balance(account), 3_500_000n);
  await assertSound(restored, checkout);
});

test('report compares credit with the processor, and shows the tax apart', async (t) => {
  const { gateway, checkout } = await shop(t, { STRIPE_AUTOMATIC_TAX: 'true' });
  const { session } = await sell(gateway, checkout, 700);
  await checkout.refund({ session, amountCents: 385 });
  await followProcessor(gateway);
  const today = new Date().toISOString().slice(0, 10);
  const env = { ...checkout.env, DATABASE_URL: gateway.databaseUrl };
  const { out } = await operatorCommand(env, 'report', '--from', today, '--to', today, '--json');
  const { outsideMicroUsd, ledgerMicroUsd, differences, apartMicroUsd } = JSON.parse(out).processor;
  t.strictSame([outsideMicroUsd, ledgerMicroUsd, differences], [3_500_000, 3_500_000, []]);
  t.strictSame(apartMicroUsd, { tax: 350_000 });
});
