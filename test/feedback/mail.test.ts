import assert from 'node:assert/strict';
import { test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { BUG, type Feedback, give } from '../support/feedback.ts';
import { startGateway } from '../support/gateway.ts';
import { type MailServer, type ReceivedMail, startMailServer } from '../support/mail-server.ts';
import { until } from '../support/until.ts';
import { viemWallet } from '../support/wallet.ts';
import { entries, isMailed, mailEnv, start } from './mailing.ts';

const arrived = async (server: MailServer, count = 1): Promise<ReceivedMail> => {
  await until(() => server.mails.length >= count);
  return server.mails[count - 1] as ReceivedMail;
};

test('feedback is mailed as plain text, and its record stores the time', async (t) => {
  const { gateway, server } = await start(t);
  const wallet = viemWallet();
  const { status, json, headers } = await give(gateway, wallet);
  assert.equal(status, 201);
  assert.equal(json.notification, 'queued');
  const mail = await arrived(server);
  assert.equal(mail.from, 'from@speech.example');
  assert.deepEqual(mail.to, ['to@speech.example', 'second@speech.example']);
  assert.equal(mail.header('from'), 'Speechgate <from@speech.example>');
  assert.equal(mail.header('to'), 'to@speech.example, second@speech.example');
  assert.equal(mail.header('subject'), `[speechgate] Feedback: bug from ${wallet.address.toLowerCase()}`);
  assert.equal(mail.header('message-id'), `<feedback-${json.feedbackId}@speech.example>`);
  assert.equal(new Date(mail.header('date') ?? '').getTime(), Math.floor(Date.parse(json.receivedAt) / 1000) * 1000);
  assert.match(mail.header('content-type') ?? '', /^text\/plain; charset=utf-8$/);
  for (const part of [
    json.feedbackId,
    json.receivedAt,
    wallet.address.toLowerCase(),
    headers.get('x-trace-id') ?? '',
    'agent: "shop-assistant/1.4"',
    'lastHttpStatus: 402',
    BUG.message,
  ]) {
    assert.ok(mail.text.includes(part), part);
  }
  await until(() => isMailed(gateway, json.feedbackId));
  await until(async () => (await entries(gateway)).length === 0);
  assert.equal(server.mails.length, 1);
});

test('the response does not wait for the mail server', async (t) => {
  const { gateway, server } = await start(t);
  let greet = () => {};
  server.beforeGreeting = () => new Promise((resolve) => (greet = resolve));
  const first = await give(gateway, viemWallet());
  await until(() => server.connections === 1);
  const second = await give(gateway, viemWallet());
  assert.deepEqual([first.status, second.status], [201, 201], 'while the mail server has not even greeted');
  assert.deepEqual(server.mails, []);
  server.beforeGreeting = async () => {};
  greet();
  await arrived(server, 2);
});

test('mail is delivered once after the mail server was down', async (t) => {
  const port = await freePort();
  const gateway = await startGateway(t, mailEnv(`smtp://127.0.0.1:${port}`), { worker: true });
  const { status, json } = await give(gateway, viemWallet());
  assert.equal(status, 201);
  await until(async () => (await entries(gateway)).some(({ attempts, is_locked }) => attempts === 1 && !is_locked));
  assert.equal(await isMailed(gateway, json.feedbackId), false);
  const server = await startMailServer(t, port);
  await arrived(server);
  await until(() => isMailed(gateway, json.feedbackId));
  await until(async () => (await entries(gateway)).length === 0);
  assert.equal(server.mails.length, 1);
});

test('refused mail stays in the queue and is delivered once', async (t) => {
  const { gateway, server } = await start(t);
  for (const [index, code] of [451, 554].entries()) {
    server.refuseNext(code);
    const { json } = await give(gateway, viemWallet());
    await until(async () => (await entries(gateway)).some(({ attempts, is_locked }) => attempts === 1 && !is_locked));
    assert.equal(await isMailed(gateway, json.feedbackId), false);
    const mail = await arrived(server, index + 1);
    await until(async () => (await entries(gateway)).length === 0);
    assert.equal(server.mails.length, index + 1);
    assert.equal(mail.header('message-id'), `<feedback-${json.feedbackId}@speech.example>`);
  }
});

const HOSTILE: readonly [string, string][] = [
  ['CRLF and a header', 'hello\r\nBcc: victim@example.com\r\nSubject: changed\r\n\r\nbody'],
  ['LF and a header', 'hello\nBcc: victim@example.com\n\nbody'],
  ['a lone CR and a header', 'hello\rBcc: victim@example.com\r\rbody'],
  ['the end of SMTP data', 'hello\r\n.\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<victim@example.com>\r\n'],
  ['a line of one dot', '.\n..\n.'],
  ['HTML', '<script>alert(1)</script><img src=x onerror=alert(1)>&amp;"\''],
  ['C0, DEL and C1', '\u0001\u0007\b\t\u000b\f\u001b[31mred\u001b]0;title\u0007\u007f\u0085\u009b31m'],
  ['other line ends and directions', 'a\u2028b\u2029c\u202egnp.exe\u2066d\u2069\ufeffe'],
  ['a MIME boundary and encoded words', '--boundary\nContent-Type: text/html\n\n=?utf-8?q?=41?= =41 =\n='],
  ['emoji', '😀👩🏽‍🚀'.repeat(30)],
  ['a long line', 'x'.repeat(499)],
  ['SQL and JSON', `'; drop table feedback; -- {"a":"\\u0041"}`],
  ['lines that look like ours', 'Wallet:    0x0000000000000000000000000000000000000000 (signature checked)'],
];

test('hostile content arrives only as text in the mail body', async (t) => {
  const { gateway, server } = await start(t);
  await give(gateway, viemWallet(), { message: 'harmless', category: 'other' });
  const headerNames = (mail: ReceivedMail) => mail.headers.map((line) => line.split(':')[0]);
  const expected = headerNames(await arrived(server));
  const ours = (mail: ReceivedMail) => mail.text.slice(0, mail.text.indexOf('What follows was written by the sender.'));
  const lines = (text: string) => text.split('\n').map((line) => line.split(':')[0]);
  const expectedLines = lines(ours(server.mails[0] as ReceivedMail));

  for (const [index, [name, text]] of HOSTILE.entries()) {
    const short = text.slice(0, 100).replace(/[\ud800-\udbff]$/, '');
    const details = { agent: text, endpoint: text, paymentFlow: short, errorCode: short, traceId: short };
    const feedback: Feedback = { message: text, category: 'other', details };
    const reply = await give(gateway, viemWallet(), feedback);
    assert.equal(reply.status, 201, `${name}: ${reply.text}`);
    const row = await gateway.db
      .selectFrom('feedback')
      .select(['message', 'details'])
      .where('id', '=', reply.json.feedbackId)
      .executeTakeFirstOrThrow();
    assert.deepEqual(row, { message: text, details }, `${name} is stored as it was sent`);

    const mail = await arrived(server, index + 2);
    assert.deepEqual(headerNames(mail), expected, `${name} adds no header`);
    assert.deepEqual(mail.to, ['to@speech.example', 'second@speech.example'], name);
    assert.match(mail.header('content-type') ?? '', /^text\/plain/, name);
    const asLines = (raw: string) => raw.replace(/\r\n?/g, '\n');
    assert.ok(asLines(mail.text).includes(`\n${asLines(text)}\n`), `${name} arrives in the message:\n${mail.text}`);
    assert.deepEqual(lines(ours(mail)), expectedLines, `${name} adds nothing to our own lines`);
    for (const [field, value] of Object.entries(details)) {
      const line = mail.text.split('\n').find((candidate) => candidate.startsWith(`${field}: `));
      assert.deepEqual(JSON.parse(line?.slice(field.length + 2) ?? ''), value, `${name} arrives in ${field}`);
    }
  }
});
