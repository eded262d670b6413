import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import {
  isConnectionError,
  isDatabaseFault,
  isNotSetUp,
  isRefused,
  isUnavailable,
} from '../../src/db/database-errors.ts';
import { emptyDatabase } from '../support/database.ts';
import { type Greeting, SELF_SIGNED, startTlsServer } from '../support/tls-server.ts';

/** What pg throws when a server is asked for TLS: by how the server greets, and the parameters of the URL. */
const GREETINGS: Readonly<Record<string, readonly [greeting: string | Greeting, mode: string, fault: RegExp]>> = {
  'a certificate of its own': [SELF_SIGNED, 'verify-full', /SELF_SIGNED/],
  'no TLS': [(client) => client.write('N'), 'require', /does not support SSL/],
  nonsense: [(client) => client.write('HTTP/1.1 400 Bad Request\r\n\r\n'), 'require', /establishing an SSL/],
  'plain text after its consent': [
    (client) => {
      client.once('data', () => client.write('plain text in place of a greeting'));
      client.write('S');
    },
    'require',
    /EPROTO|ERR_SSL_/,
  ],
  'consent and nothing more': [(client) => client.end('S'), 'require', /ECONNRESET|disconnected/],
  'an error': [(client) => client.end('E\0\0\0\x1cSFATAL\0C57P03\0Mnot yet\0\0'), 'require', /./],
};

for (const [name, [greeting, mode, fault]] of Object.entries(GREETINGS)) {
  test(`a database is unavailable that shows ${name}`, async (t) => {
    const { url } = await startTlsServer(t, greeting);
    const db = openDatabase(`${url}?sslmode=${mode}`, { maxConnections: 1 });
    t.teardown(() => db.destroy());
    const error = await sql`select 1`.execute(db).catch((thrown) => thrown);
    t.match(`${error.code} ${error.message}`, fault);
    t.ok(isConnectionError(error), `${error.code} ${error.message}`);
  });
}

test('a database is unavailable that ends long transactions or refuses too many connections', async (t) => {
  const { url } = await emptyDatabase(t);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const raised = (state: string) =>
    sql`do ${sql.lit(`begin raise exception 'told' using errcode = '${state}'; end`)}`
      .execute(db)
      .catch((error) => error);
  for (const state of ['25P03', '25P04', '57P01', '57P05', '53300', '08006', 'XX000']) {
    t.ok(isConnectionError(await raised(state)), state);
  }
  for (const state of ['XX001', '40001', '58030']) {
    const error = await raised(state);
    t.strictSame([isConnectionError(error), isUnavailable(error)], [false, true], state);
  }
  for (const state of ['23505', '22003', 'P0001']) t.equal(isDatabaseFault(await raised(state)), false, state);
});

const CODES = [
  ...['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_REVOKED', 'CERT_UNTRUSTED', 'CERT_SIGNATURE_FAILURE'],
  ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
  ...['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'HOSTNAME_MISMATCH', 'INVALID_CA', 'INVALID_PURPOSE', 'CRL_HAS_EXPIRED'],
  ...['ERR_TLS_CERT_ALTNAME_INVALID', 'ERR_TLS_HANDSHAKE_TIMEOUT', 'ERR_SSL_WRONG_VERSION_NUMBER', 'EPROTO'],
  ...['ERR_SSL_TLSV1_ALERT_UNKNOWN_CA', 'ERR_OSSL_PEM_NO_START_LINE', 'EMFILE', 'ENFILE', 'EADDRNOTAVAIL', 'EACCES'],
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT'],
];

test('errors of network and TLS are told from those of files and of the program', async (t) => {
  const withCode = (code: string, syscall?: string) => Object.assign(new Error('told'), { code, syscall });
  for (const code of CODES) t.ok(isConnectionError(withCode(code)), code);
  t.ok(isConnectionError(withCode('EMFILE', 'connect')) && isConnectionError(withCode('EMFILE', 'getaddrinfo')));
  t.ok(isConnectionError(new AggregateError([withCode('EACCES', 'connect')])));
  for (const code of ['EMFILE', 'EACCES', 'EPERM']) t.equal(isDatabaseFault(withCode(code, 'open')), false, code);
  for (const error of [new TypeError('x is undefined'), withCode('ERR_INVALID_ARG_TYPE'), undefined, 'ECONNRESET']) {
    t.equal(isDatabaseFault(error), false);
  }
});

test('a URL of several hosts and a missing password are refused, which needs an operator', async (t) => {
  for (const url of ['postgres://user@one.example:5432,two.example:5432/speech', 'postgres://a:b@c:port/speech']) {
    const db = openDatabase(url, { maxConnections: 1 });
    t.teardown(() => db.destroy().catch(() => {}));
    const error = await sql`select 1`.execute(db).catch((thrown) => thrown);
    t.ok(isRefused(error) && isNotSetUp(error), `${error.code} ${error.message}`);
  }
  t.ok(isRefused(new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string')));
});
