/** A deposit that is killed after its signature left is not forgotten, and not paid twice. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { generatePrivateKey } from 'viem/accounts';
import { startChild } from '../../support/child.ts';
import { pinsOf } from '../../support/client.ts';
import { startGateway } from '../../support/gateway.ts';
import { speechgate } from '../../support/speechgate.ts';
import { until } from '../../support/until.ts';

const CREDITED = { address: '0x1', balanceMicroUsd: 1_000_000, creditedMicroUsd: 1_000_000, alreadyCredited: false };

/** A service in front of a gateway that answers signed deposits itself, or leaves them without an answer. */
async function startDepositServer(t: Test) {
  const payments: string[] = [];
  const state = { answers: false, target: '' };
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const payment = request.headers['payment-signature'];
    if (payment !== undefined) {
      payments.push(String(payment));
      if (!state.answers) return;
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(CREDITED));
      return;
    }
    const { host, connection, ...headers } = request.headers as Record<string, string>;
    const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {};
    const method = request.method as string;
    const answer = await fetch(state.target + request.url, { method, headers, ...body });
    const bytes = Buffer.from(await answer.arrayBuffer());
    const kept = [...answer.headers].filter(
      ([name]) => !['connection', 'keep-alive', 'transfer-encoding'].includes(name),
    );
    response.writeHead(answer.status, Object.fromEntries(kept)).end(bytes);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, payments, state };
}

test('the next deposit finishes the one whose process was killed', async (t) => {
  const { url, payments, state } = await startDepositServer(t);
  const gateway = await startGateway(t, { BASE_URL: url });
  state.target = gateway.url;
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-killed-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const env = {
    SPEECHGATE_CONFIG_DIR: folder,
    SPEECHGATE_URL: url,
    SPEECHGATE_WALLET_KEY: generatePrivateKey(),
    SPEECHGATE_TRUST: JSON.stringify(pinsOf(gateway)),
  };

  const child = startChild(t, 'src/cli/speechgate.ts', env, ['deposit', '1.00']);
  await until(async () => payments.length > 0);
  await child.stop('SIGKILL');
  const listed = await speechgate(env, 'resume', '--list', '--json');
  const { purchases } = JSON.parse(listed.out);
  assert.deepEqual([purchases.length, purchases[0]?.kind], [1, 'deposit']);

  state.answers = true;
  const again = await speechgate(env, 'deposit', '1.00', '--json');
  assert.equal(again.code, 0, again.err);
  const told = JSON.parse(again.out);
  assert.deepEqual([told.outcome, told.earlier, told.identifier], ['bought', true, purchases[0].identifier]);
  assert.deepEqual([...new Set(payments)].length, 1, 'the identical payment');
  assert.deepEqual(await readdir(join(folder, 'pending')), []);

  const fresh = await speechgate(env, 'deposit', '1.00');
  assert.match(fresh.out, /^1\.000000 USD deposited/);
  assert.equal(new Set(payments).size, 2);
  assert.deepEqual(await readdir(join(folder, 'pending')), []);
});
