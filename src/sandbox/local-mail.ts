import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';
import { ownSubfolder, replaceOwnFile } from '../lib/private-files.ts';

const MAX_MAIL_BYTES = 1_048_576;

/** Accepts every mail on 127.0.0.1, delivers none, and saves each as a file in DATA_DIR/mail. */
export async function startMailSink(options: { dataDir: string; onMail: (file: string) => void }) {
  const directory = await ownSubfolder(join(options.dataDir, 'mail'));
  let count = 0;

  const keep = async (mail: Buffer) => {
    count += 1;
    const name = `${new Date().toISOString().replaceAll(':', '-')}-${count}.eml`;
    const file = join(directory, name);
    await replaceOwnFile(file, mail);
    options.onMail(file);
  };

  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    size: MAX_MAIL_BYTES,
    onData: (stream, _session, done) => {
      buffer(stream)
        .then(keep)
        .then(() => done(), done);
    },
  });
  server.on('error', () => {});
  const listening = server.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = listening.address() as AddressInfo;
  return {
    url: `smtp://127.0.0.1:${port}`,
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}
