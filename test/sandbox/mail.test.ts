import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'tap';
import { startMailSink } from '../../src/sandbox/local-mail.ts';
import { give } from '../support/feedback.ts';
import { startGateway } from '../support/gateway.ts';
import { readMail } from '../support/mail-server.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { viemWallet } from '../support/wallet.ts';

test("the sandbox's mail server stores each mail in a file, on loopback only", async (t) => {
  const dataDir = await temporaryFolder(t);
  const files: string[] = [];
  const sink = await startMailSink({ dataDir, onMail: (file) => files.push(file) });
  t.teardown(() => sink.close());
  t.equal(new URL(sink.url).hostname, '127.0.0.1');
  const env = { SMTP_URL: sink.url, FEEDBACK_FROM: 'from@sandbox.test', FEEDBACK_TO: 'to@sandbox.test' };
  const gateway = await startGateway(t, env, { worker: true });
  const messages = ['the first', 'the second, größer'];
  for (const message of messages)
    t.equal((await give(gateway, viemWallet(), { message, category: 'other' })).status, 201);
  await until(() => files.length === 2);
  t.strictSame((await readdir(join(dataDir, 'mail'))).length, 2);
  const texts = [];
  for (const file of files) {
    t.equal(dirname(file), join(dataDir, 'mail'));
    t.match(file, /\.eml$/);
    texts.push(readMail(await readFile(file, 'latin1')).text);
  }
  for (const message of messages)
    t.ok(
      texts.some((text) => text.includes(`\n${message}\n`)),
      message,
    );
});
