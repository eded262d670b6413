import { readFile, writeFile } from 'node:fs/promises';
import pg from 'pg';
import { t, test } from 'tap';
import { openContext } from '../../../src/operators/doctor/check.ts';
import { DATABASE_CHECKS } from '../../../src/operators/doctor/database-checks.ts';
import { runChecks } from '../../../src/operators/doctor/run-checks.ts';
import { startPostgres } from '../../../src/sandbox/postgres.ts';
import { configOf } from '../../support/setting.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { EXPIRED, type Greeting, SELF_SIGNED, startTlsServer } from '../../support/tls-server.ts';

interface Connection {
  /** What PostgreSQL, TLS or the driver says. */
  readonly cause: RegExp;
  readonly fix: RegExp;
  /** Leads to the fault, by what is set in DATABASE_URL and how a server greets. */
  readonly url?: (url: URL) => void;
  readonly server?: readonly [greeting: string | Greeting, query: string];
  readonly change?: readonly [change: string, undo: string];
}

/** Why a connection to the database fails, and what mends it. */
const CONNECTIONS: Readonly<Record<string, Connection>> = {
  'a server without TLS': {
    cause: /does not support SSL/,
    fix: /^Turn on TLS in the database server \(ssl = on\), or turn TLS off in DATABASE_URL\.$/,
    url: (url) => url.searchParams.set('sslmode', 'require'),
  },
  'an expired certificate': {
    cause: /certificate has expired/,
    fix: /^Renew the certificate of the server in DATABASE_URL/,
    server: [EXPIRED, '?sslmode=verify-full&sslrootcert=CA'],
  },
  'a certificate of another host': {
    cause: /does not match certificate's altnames/,
    fix: /^Set the host in DATABASE_URL to a name in the certificate/,
    server: [SELF_SIGNED, '?sslmode=verify-full&sslrootcert=CA'],
    url: (url) => Object.assign(url, { hostname: 'localhost' }),
  },
  'a certificate of an unknown authority': {
    cause: /self-signed certificate/,
    fix: /^Set sslrootcert in DATABASE_URL/,
    server: [SELF_SIGNED, '?sslmode=verify-full'],
  },
  'a server that is not PostgreSQL': {
    cause: /establishing an SSL connection/,
    fix: /^Set the host and port in DATABASE_URL to those of PostgreSQL\./,
    server: [(client) => client.write('HTTP/1.1 400 Bad Request\r\n\r\n'), '?sslmode=require'],
  },
  'a wrong password': {
    cause: /password authentication failed/,
    fix: /^Correct the user or password in DATABASE_URL\.$/,
    url: (url) => Object.assign(url, { password: 'e0b1f7a2c3d4' }),
  },
  'a missing password': {
    cause: /SASL/,
    fix: /^Correct the user or password in DATABASE_URL\.$/,
    url: (url) => Object.assign(url, { password: '' }),
  },
  'a role that may not log in': {
    cause: /not permitted to log in/,
    fix: /alter role NAME login/,
    change: ['alter role app nologin', 'alter role app login'],
  },
  'a rule of pg_hba.conf': {
    cause: /pg_hba\.conf rejects/,
    fix: /^Allow this host, user and database in pg_hba\.conf.* If that file asks for TLS \(hostssl\), add sslmode=verify-full to DATABASE_URL\.$/,
    url: (url) => Object.assign(url, { username: 'barred' }),
  },
  'a database that does not exist': {
    cause: /database "nowhere" does not exist/,
    fix: /^Create the database, or correct its name in DATABASE_URL\.$/,
    url: (url) => Object.assign(url, { pathname: '/nowhere' }),
  },
  'a database that accepts no connections': {
    cause: /not currently accepting connections/,
    fix: /alter database NAME allow_connections true/,
    url: (url) => Object.assign(url, { pathname: '/template0' }),
  },
  'a role without the right to connect': {
    cause: /permission denied for database/,
    fix: /grant connect .+ on database NAME to ROLE/,
    change: ['revoke connect on database postgres from public', 'grant connect on database postgres to public'],
    url: (url) => Object.assign(url, { pathname: '/postgres' }),
  },
  'too many connections': {
    cause: /too many connections/,
    fix: /^Close connections of other programs, or raise max_connections/,
    change: ['alter role app connection limit 0', 'alter role app connection limit -1'],
  },
  'a host name that does not exist': {
    cause: /ENOTFOUND|EAI_AGAIN/,
    fix: /^Correct the host in DATABASE_URL, or its DNS entry\.$/,
    url: (url) => Object.assign(url, { hostname: 'database.invalid' }),
  },
  'a port that nothing listens on': {
    cause: /ECONNREFUSED/,
    fix: /^Start the database server, or correct the host and port in DATABASE_URL\.$/,
    url: (url) => Object.assign(url, { port: '1' }),
  },
};

const postgres = await startPostgres({ dataDir: await temporaryFolder(t) });
const owner = new pg.Client(postgres.url);
await owner.connect();
t.teardown(async () => {
  await owner.end();
  await postgres.stop();
});
const [{ hba_file: rules }] = (await owner.query('show hba_file')).rows;
await writeFile(rules, `host all barred all reject\n${await readFile(rules, 'utf8')}`);
await owner.query('select pg_reload_conf()');
await owner.query("create role app login password 'c0ffee'");

for (const [name, { cause, fix, url: set, server, change: [change, undo] = [] }] of Object.entries(CONNECTIONS)) {
  test(`doctor's fix fits ${name}`, async (t) => {
    const tls = server && (await startTlsServer(t, server[0]));
    const url = new URL(tls ? tls.url + server[1].replace('CA', tls.ca) : postgres.url);
    Object.assign(url, tls ? {} : { username: 'app', password: 'c0ffee' });
    set?.(url);
    if (undo) t.teardown(() => owner.query(undo));
    if (change) await owner.query(change);
    const options = { misspelt: [], keysFile: undefined, isSandbox: true, speaks: false, now: Date.now };
    const context = openContext({ ...options, config: configOf({ DATABASE_URL: url.href }) });
    t.teardown(() => context.db.destroy());
    const checks = DATABASE_CHECKS.filter((check) => check.name === 'database');
    for await (const found of runChecks(checks, context, new Set()))
      t.match(found, { state: 'fault', message: cause, fix });
  });
}
