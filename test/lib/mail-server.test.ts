import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { createTransport } from 'nodemailer';
import { test } from 'tap';
import { startMailServer } from '../support/mail-server.ts';
import { until } from '../support/until.ts';

test('a sender that goes amid a mail does not end the mail server', async (t) => {
  const server = await startMailServer(t);
  const socket = connect(server.port, '127.0.0.1');
  let said = '';
  socket.on('data', (bytes) => {
    said += bytes;
  });
  for (const line of ['', 'EHLO localhost', 'MAIL FROM:<a@localhost.test>', 'RCPT TO:<b@localhost.test>', 'DATA']) {
    const before = said.length;
    if (line) socket.write(`${line}\r\n`);
    await until(async () => /^\d{3} .*\r\n$/m.test(said.slice(before)), 5_000);
  }
  socket.write('Subject: half a mail\r\n');
  socket.destroy();
  await once(socket, 'close');

  const mailer = createTransport(server.url);
  await mailer.sendMail({ from: 'a@localhost.test', to: 'b@localhost.test', subject: 'whole', text: 'a whole mail' });
  assert.equal(server.mails.length, 1);
});
