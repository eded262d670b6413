import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Test, t, test } from 'tap';
import { testDatabase } from '../../test/support/database.ts';
import { send } from '../../test/support/gateway.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';

const MEBIBYTE = 1024 * 1024;
/** Resident memory for a moment: Node parses all that one read brings, and makes two objects of each request. */
const MOST_MEBIBYTES = 2_048;
const SPEECH_TIMEOUT_MS = 2_000;
/** The longest synthesis and 30 s. */
const CUT_AFTER_MS = SPEECH_TIMEOUT_MS + 30_000;
/** What a busy machine adds. */
const TIMEOUT_MS = 120_000;
const POLL_MS = 250;

/** Connections, what each sends and never reads an answer to, and whether the answers are more than the kernel takes. */
const ATTACKS: [number, string, number, boolean][] = [
  [40, 'GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n', 24_600, true],
  [350, 'GET / HTTP/1.1\r\nhost: a\r\n\r\n', 1_700, false],
];

// They mostly wait.
t.jobs = ATTACKS.length;

for (const [connections, request, repeats, isCut] of ATTACKS) {
  const [line] = request.split(' HTTP');
  test(`${connections} clients that pipeline ${repeats} x ${line} unread do no harm`, async (t) => {
    const { url, residentBytes, openFiles } = await start(t);
    await send(url, '/openapi.json');
    const before = residentBytes();
    const openBefore = openFiles();
    const clients = await Promise.all(Array.from({ length: connections }, () => open(t, url)));
    for (const client of clients) client.write(request.repeat(repeats));

    let most = 0;
    const watchUntil = performance.now() + CUT_AFTER_MS;
    const giveUpAt = watchUntil + TIMEOUT_MS;
    const areCut = () => openFiles() < openBefore + connections / 10;
    do {
      await sleep(POLL_MS);
      most = Math.max(most, residentBytes() - before);
      // The edge limit counts one address; whoever it refuses is answered all the same.
      assert.ok([200, 429].includes((await send(url, '/')).status));
    } while (performance.now() < watchUntil || (isCut && !areCut() && performance.now() < giveUpAt));
    assert.ok(most < MOST_MEBIBYTES * MEBIBYTE, `${Math.round(most / MEBIBYTE)} MiB more`);
    if (isCut) assert.ok(areCut(), 'whoever reads nothing is cut');
    for (const client of clients) client.resume();
    if (isCut)
      await Promise.all(
        clients.map((client) => client.closed || new Promise((closed) => client.once('close', closed))),
      );
    assert.ok([200, 429].includes((await send(url, '/')).status));
  });
}

async function start(t: Test) {
  const { url: databaseUrl } = await testDatabase(t);
  const { url, child } = await startGatewayProcess(t, {
    DATABASE_URL: databaseUrl,
    LOG_LEVEL: 'silent',
    SPEECH_BASE_URL: 'http://127.0.0.1:1/v1',
    SPEECH_TIMEOUT_MS: String(SPEECH_TIMEOUT_MS),
  });
  const pid = String(child.process.pid);
  return {
    url,
    residentBytes: () => Number(execFileSync('ps', ['-o', 'rss=', '-p', pid]).toString()) * 1024,
    openFiles: () => readdirSync(`/proc/${pid}/fd`).length,
  };
}

/** A client that does not read. */
async function open(t: Test, url: string): Promise<Socket> {
  const client = connect(Number(new URL(url).port), '127.0.0.1').pause();
  client.on('error', () => {});
  t.teardown(() => client.destroy());
  await once(client, 'connect');
  return client;
}
