import { setTimeout as sleep } from 'node:timers/promises';

/** XX000: a pooler that lost its server says so, also for a commit that was done. */
const UNAVAILABLE_STATES = /^(08...|57P0[1-5]|57014|53...|55000|25006|25P0[34]|XX000)$/;
const FAILED_INSIDE_STATES = /^(40001|40P01|55006|55P03|58...|XX...)$/;
const REFUSED_STATES = /^(3D000|28...)$/;
const NOT_SET_UP_STATES = /^(42P01|42703|42883|42501|3F000)$/;
/** Codes of Node.js without SQLSTATE: of the network, of TLS, and of OpenSSL for certificates. */
const NETWORK_ERRORS =
  /^(ECONN|EPIPE|EPROTO|ENOTFOUND|EAI_|ETIMEDOUT|EHOST|ENET|ENOENT|EADDR|ENOBUFS|ERR_TLS_|ERR_SSL_|ERR_OSSL_)/;
const CERTIFICATE_ERRORS =
  /^(CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_(CA|PURPOSE)$|HOSTNAME_MISMATCH$|PATH_LENGTH_EXCEEDED$)|SELF_SIGNED/;
/** Also those of files, which say nothing about the database. */
const RESOURCE_ERRORS = /^(EMFILE|ENFILE|ENOMEM|EACCES|EPERM)$/;
const SOCKET_CALLS = /^(connect|socket|bind|getaddrinfo)$/;
const DRIVER_MESSAGES =
  /^timeout expired|timeout exceeded when trying to connect|Connection terminated|Query read timeout|not queryable|does not support SSL|establishing an SSL connection|^Received unexpected|^received invalid response|^Unknown authenticationOk/;
const REFUSED_BY_DRIVER = /^SASL: |^Password must be a string/;

/** True if the database is unreachable, timed out, or accepts no statements at present. What was sent is in doubt. */
export function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isConnectionError);
  const code = codeOf(error);
  const { syscall = 'connect' } = error as NodeJS.ErrnoException;
  return (
    [UNAVAILABLE_STATES, NETWORK_ERRORS, CERTIFICATE_ERRORS].some((codes) => codes.test(code)) ||
    (RESOURCE_ERRORS.test(code) && SOCKET_CALLS.test(syscall)) ||
    DRIVER_MESSAGES.test(error.message)
  );
}

/** True if the same statement may succeed later. */
export const isUnavailable = (error: unknown): boolean =>
  isConnectionError(error) || (error instanceof Error && FAILED_INSIDE_STATES.test(codeOf(error)));

/** True if the server refuses the login, or the driver the URL. */
export const isRefused = (error: unknown): error is Error =>
  error instanceof Error &&
  (REFUSED_STATES.test(codeOf(error)) || codeOf(error) === 'ERR_INVALID_URL' || REFUSED_BY_DRIVER.test(error.message));

/** True if an operator must act: the database refuses the login, or lacks tables or rights (R47). */
export const isNotSetUp = (error: unknown): boolean =>
  isRefused(error) || (error instanceof Error && NOT_SET_UP_STATES.test(codeOf(error)));

export const isDatabaseFault = (error: unknown): boolean => isUnavailable(error) || isNotSetUp(error);

/** What to set if the error comes from a pooler such as PgBouncer. */
export function poolerFix(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const code = codeOf(error);
  // The statement is of another client, or was prepared on another connection.
  if (code === '26000' || code === '42P05') {
    return (
      'The pooler (transaction mode) loses prepared statements. Set max_prepared_statements = 200 in PgBouncer 1.21 or ' +
      'later, or set DATABASE_NAMED_STATEMENTS=off.'
    );
  }
  if (code === '08P01' && error.message.includes('startup parameter'))
    return 'Set ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout,options in PgBouncer.';
  return undefined;
}

/** By code or, where it says too little, by message. The first that matches counts. */
const CONNECTION_FIXES: readonly (readonly [error: RegExp, fix: string])[] = [
  [/does not support SSL/, 'Turn on TLS in the database server (ssl = on), or turn TLS off in DATABASE_URL.'],
  [
    /establishing an SSL connection|received (unexpected|invalid response)|unknown authenticationOk/i,
    'Set the host and port in DATABASE_URL to those of PostgreSQL. If they are right, read the log of PostgreSQL.',
  ],
  [
    /^CERT_HAS_EXPIRED/,
    'Renew the certificate of the server in DATABASE_URL or of its authority, or correct the clock here.',
  ],
  [/^CERT_NOT_YET_VALID/, 'Synchronize the clocks of this machine and the database server by NTP.'],
  [
    /ALTNAME_INVALID|HOSTNAME_MISMATCH/,
    'Set the host in DATABASE_URL to a name in the certificate of the server, or give the server a certificate for that host.',
  ],
  [
    /ALERT_(UNKNOWN_CA|BAD_CERT|CERT)|CERTIFICATE_REQUIRED|client certificate/,
    'Set sslcert and sslkey in DATABASE_URL to the files of a certificate and key that the database server accepts.',
  ],
  [
    /SELF_SIGNED|^UNABLE_TO_|^CERT_UNTRUSTED|^INVALID_CA/,
    'Set sslrootcert in DATABASE_URL to the file of the authority that signed the certificate of the server.',
  ],
  [/^28P01|SASL|Password must be/, 'Correct the user or password in DATABASE_URL.'],
  [
    /pg_hba/,
    'Allow this host, user and database in pg_hba.conf of the database server. If that file asks for TLS (hostssl), add sslmode=verify-full to DATABASE_URL.',
  ],
  [/^28000/, 'Correct the user in DATABASE_URL, let it log in (create or alter role NAME login), or edit pg_hba.conf.'],
  [/^3D000/, 'Create the database, or correct its name in DATABASE_URL.'],
  [/^55000/, 'Allow connections to the database: alter database NAME allow_connections true.'],
  [/^42501/, 'Give the role its right: grant connect (to migrate: connect, create) on database NAME to ROLE.'],
  [
    /^53300/,
    'Close connections of other programs, or raise max_connections or the connection limit of the role or database.',
  ],
  [/^53/, 'Free disk space or memory on the database server.'],
  [/^57P0/, 'Wait until the database server has started. If it does not start, read its log.'],
  [/^(ENOTFOUND|EAI_)/, 'Correct the host in DATABASE_URL, or its DNS entry.'],
  [/^(ECONNREFUSED|ENOENT)/, 'Start the database server, or correct the host and port in DATABASE_URL.'],
  [/^(ETIMEDOUT|EHOST|ENET)|time/, 'Check host and port in DATABASE_URL, firewalls, and the load of the server.'],
];

/** What to do about an error of a new connection to the database. */
export function connectionFix(error: Error): string {
  const text = `${codeOf(error)} ${error.message}`;
  const fix = poolerFix(error) ?? CONNECTION_FIXES.find(([pattern]) => pattern.test(text))?.[1];
  return fix ?? 'Read the log of the database server, and check the host and port in DATABASE_URL.';
}

/** What to do if the database accepts no writes. */
export const READ_ONLY_FIX =
  'If it is a standby, set DATABASE_URL to the primary. Otherwise reset default_transaction_read_only in the role, the database or the server.';

/** What to do if the role of the connection lacks rights. */
export const RIGHTS_FIX =
  'Run npm run migrate as the owner of the tables, with DATABASE_APP_ROLE set to the role that DATABASE_URL names.';

export function rightsFix(error: unknown): string | undefined {
  if (!(error instanceof Error) || codeOf(error) !== '42501') return undefined;
  return / for database /.test(error.message) ? connectionFix(error) : RIGHTS_FIX;
}

export const faultOf = ({ message, code }: { message?: string; code?: string }): string | undefined =>
  message?.trim() || code;

const codeOf = (error: Error): string => String((error as { code?: unknown }).code ?? '');

const RETRY_EVERY_MS = 250;

/** Retries a statement that is safe to repeat while the database is unavailable, for at most `timeoutMs`. */
export async function retryOnDbUnavailable<T>(timeoutMs: number, statement: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + timeoutMs; ; await sleep(RETRY_EVERY_MS)) {
    try {
      return await statement();
    } catch (error) {
      if (!isUnavailable(error) || performance.now() >= giveUpAt) throw error;
    }
  }
}
