import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, readFile, stat, writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { operationsOn } from '../support/checkout-operations.ts';
import { projectFile } from '../support/project.ts';
import { balanceOf, choose, client, KEY, newDirectory, order, purchase, setUp, urlOf } from './checkout-client.ts';
import { scene, skip } from './facilitator-scene.ts';

async function start(t: Test, dataDir: string) {
  const checkout = await startCheckout({ dataDir, secretKey: KEY });
  t.teardown(checkout.close);
  return { ...checkout, ...operationsOn(checkout), stripe: client(checkout.apiBase) };
}

test('confirmed sessions survive a kill, and the address stays the same', async (t) => {
  const dataDir = await newDirectory(t);
  const module = fileURLToPath(projectFile('dist/sandbox/checkout/checkout-server.js'));
  const script = `
    const { startCheckout } = await import(${JSON.stringify(module)});
    const options = { dataDir: ${JSON.stringify(dataDir)}, secretKey: ${JSON.stringify(KEY)} };
    console.log((await startCheckout(options)).origin);`;
  const child: ChildProcess = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  const origin = line.toString().trim();
  const stripe = client(origin);
  const session = await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' });
  const other = await stripe.checkout.sessions.create(order);
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
  child.kill('SIGKILL');
  await once(child, 'exit');

  const again = await start(t, dataDir);
  assert.equal(again.origin, origin);
  assert.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, 'paid');
  assert.equal((await stripe.checkout.sessions.retrieve(other.id)).status, 'open');
  assert.equal((await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' })).id, session.id);
  assert.equal((await stat(join(dataDir, 'checkout.json'))).mode & 0o777, 0o600);
});

test('payments, refunds and disputes survive a restart after a partial write', async (t) => {
  const dataDir = await newDirectory(t);
  const first = await start(t, dataDir);
  const { session, charge } = await purchase(first.stripe);
  const refund = await first.refund({ session, amountCents: 300, status: 'pending' });
  const dispute = await first.openDispute({ session, amountCents: 100 });
  const balance = (await first.stripe.balanceTransactions.list()).data;
  await first.close();
  await appendFile(join(dataDir, 'checkout.json'), '[{"id":"re_cut');

  const second = await start(t, dataDir);
  assert.equal((await second.stripe.refunds.retrieve(refund.id)).status, 'pending');
  assert.equal((await second.stripe.disputes.retrieve(dispute.id)).amount, 100);
  assert.equal((await second.stripe.charges.retrieve(charge)).amount_refunded, 300);
  assert.deepEqual((await second.stripe.balanceTransactions.list()).data, balance);
  await second.settleRefund(refund.id, 'failed');
  await second.close();

  const third = await start(t, dataDir);
  assert.equal((await third.stripe.refunds.retrieve(refund.id)).status, 'failed');
  assert.equal(await balanceOf(third.stripe), 1150);
  await third.close();
  const file = join(dataDir, 'checkout.json');
  const whole = await readFile(file, 'utf8');
  for (const damaged of [whole.replace('{', ''), whole.slice(0, 20)]) {
    await writeFile(file, damaged);
    await assert.rejects(startCheckout({ dataDir, secretKey: KEY }), /checkout\.json is damaged/);
  }
});

async function get(url: string, host: string): Promise<{ status: number | undefined; body: string }> {
  const sent = request(url, { headers: { host } }).end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode, body: await text(response) };
}

async function answersItsOwnHostOnly(url: string): Promise<void> {
  for (const host of ['evil.example', 'localhost.evil.example:80', '127.0.0.1.evil.example']) {
    const { status, body } = await get(url, host);
    assert.equal(status, 421, `${host} ${url}`);
    assert.match(body, /does not go by that host name[^\n]*$/);
  }
  for (const host of [new URL(url).host, 'localhost:1234', '[::1]']) {
    assert.notEqual((await get(url, host)).status, 421, `${host} ${url}`);
  }
}

test('checkout and dashboard answer 421 to a foreign host name', async (t) => {
  const { origin } = await setUp(t);
  for (const path of ['/dashboard', '/v1/checkout/sessions', '/nowhere']) await answersItsOwnHostOnly(origin + path);
});

test('the facilitator answers 421 to a foreign host name', { skip }, async (t) => {
  const { facilitator } = await scene(t);
  for (const path of ['/supported', '/nowhere']) await answersItsOwnHostOnly(facilitator.url + path);
});
