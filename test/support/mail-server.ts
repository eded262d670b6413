import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import type { Owner } from './child.ts';

export interface ReceivedMail {
  readonly from: string;
  readonly to: string[];
  /** The header section, unfolded, line by line. */
  readonly headers: string[];
  header(name: string): string | undefined;
  /** The decoded text, its line ends as LF. */
  readonly text: string;
}

export interface MailServer {
  readonly url: string;
  readonly port: number;
  readonly mails: ReceivedMail[];
  /** How often somebody connected. */
  readonly connections: number;
  /** Answers the end of a mail with this, once, instead of accepting it. */
  refuseNext(code: number): void;
  /** What happens before a connection is greeted; resolves at once unless a test says otherwise. */
  beforeGreeting: () => Promise<void>;
  close(): Promise<void>;
}

/** A real SMTP server on 127.0.0.1 that keeps what it accepts. */
export async function startMailServer(t: Owner, port = 0, options: SMTPServerOptions = {}): Promise<MailServer> {
  const mails: ReceivedMail[] = [];
  let connections = 0;
  let refusal: number | undefined;
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    ...options,
    onConnect: (_session, done) => {
      connections += 1;
      mailServer.beforeGreeting().then(() => done());
    },
    onData: async (stream, session, done) => {
      const bytes = await buffer(stream).catch(() => undefined);
      if (!bytes) return done(new Error('The connection has ended before the mail.'));
      if (refusal !== undefined) {
        const responseCode = refusal;
        refusal = undefined;
        return done(Object.assign(new Error('not now'), { responseCode }));
      }
      const { mailFrom, rcptTo } = session.envelope;
      mails.push({
        ...readMail(bytes.toString('latin1')),
        from: mailFrom ? mailFrom.address : '',
        to: rcptTo.map(({ address }) => address),
      });
      done();
    },
  });
  server.on('error', () => {});
  const listening = server.listen(port, '127.0.0.1');
  await once(listening, 'listening');
  const bound = (listening.address() as AddressInfo).port;
  const close = () => new Promise<void>((resolve) => server.close(() => resolve()));
  t.teardown(close);
  const mailServer: MailServer = {
    url: `smtp://127.0.0.1:${bound}`,
    port: bound,
    mails,
    get connections() {
      return connections;
    },
    refuseNext: (code) => {
      refusal = code;
    },
    beforeGreeting: async () => {},
    close,
  };
  return mailServer;
}

/** Reads a mail of one part whose text is encoded as quoted-printable (RFC 2045, 6.7). */
export function readMail(raw: string): Pick<ReceivedMail, 'headers' | 'header' | 'text'> {
  const end = raw.indexOf('\r\n\r\n');
  const headers = raw
    .slice(0, end)
    .replace(/\r\n[ \t]/g, ' ')
    .split('\r\n');
  const encoded = raw.slice(end + 4).replace(/=[ \t]*\r\n/g, '');
  const bytes = encoded.replace(/=([0-9A-F]{2})/g, (_match, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return {
    headers,
    header: (name) => {
      const line = headers.find((candidate) => candidate.toLowerCase().startsWith(`${name.toLowerCase()}: `));
      return line?.slice(name.length + 2);
    },
    text: Buffer.from(bytes, 'latin1').toString('utf8').replaceAll('\r\n', '\n'),
  };
}
