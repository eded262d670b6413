import { type Test, test } from 'tap';
import { callerCommand } from '../../support/caller-command.ts';
import { testCheckout } from '../../support/checkout.ts';
import { startGateway } from '../../support/gateway.ts';
import { startTcpProxy } from '../../support/tcp-proxy.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const READ_ATTEMPTS = 3;
const NOT_KNOWN =
  /^The service did not report whether the purchase of 7\.000000 USD was paid\. Do not pay again; run speechgate top-up later to check\.$/m;
const DENIAL = /not charged|nothing was|not received/i;

/** A buyer who has paid at the checkout, and a service that can be cut off. */
async function startPaid(t: Test) {
  const checkout = await testCheckout(t);
  const line = await startTcpProxy(t, (await startGateway(t, checkout.env)).url);
  const env = { SPEECHGATE_CONFIG_DIR: await temporaryFolder(t), SPEECHGATE_URL: new URL(line.url).origin };
  const topUp = (usd: string, ...args: string[]) => callerCommand(env, 'top-up', '--amount', usd, ...args);
  await checkout.pay(JSON.parse((await topUp('7', '--no-wait', '--json')).out).checkoutUrl);
  return { line, topUp };
}

test('top-up while the service is unavailable does not deny an earlier payment', async (t) => {
  const { line, topUp } = await startPaid(t);
  line.cut();
  const { code, output } = await topUp('9');
  t.equal(code, 1);
  t.match(output, NOT_KNOWN);
  t.notMatch(output, DENIAL);
  line.restore();
  t.match((await topUp('9')).out, /^7\.000000 USD credited; the account [0-9a-f]{8}… has 7\.000000 USD\.$/m);
});

test('top-up reports the credit also if the balance can not be read', async (t) => {
  const { line, topUp } = await startPaid(t);
  const losing = (async () => {
    for (let lost = 0; lost < READ_ATTEMPTS; lost++) await line.loseAnswer('"balanceMicroUsd"');
  })();
  const { code, output } = await topUp('7');
  await losing;
  t.equal(code, 0, output);
  t.match(
    output,
    /^7\.000000 USD credited; the balance of the account [0-9a-f]{8}… can't be read now\. Run speechgate balance/m,
  );
  t.notMatch(output, DENIAL);
});
