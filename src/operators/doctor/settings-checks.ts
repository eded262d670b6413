import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import type { Config } from '../../config/config.ts';
import { currentKey } from '../../config/signing-keys.ts';
import { parseAudioStoreSetting } from '../../config/store-setting.ts';
import { counted } from '../../lib/counted.ts';
import { type Check, type DoctorContext, type Finding, fault, ok, skipped, warning } from './check.ts';

const OTHER_FILES = 500;

export const SETTINGS_CHECKS: readonly Check[] = [
  { name: 'settings', run: areMeant },
  { name: 'file-descriptors', run: ({ config }) => areEnough(config.maxConnections) },
  { name: 'replicas', needs: 'database', run: shareTheirStore },
  { name: 'secrets', run: areStrong },
  { name: 'database-password', run: ({ config }) => isGoodPassword(new URL(config.databaseUrl)) },
];

export const SIGNING_KEY_CHECKS: readonly Check[] = [
  { name: 'signing-keys', run: judgeTime },
  { name: 'signing-keys-file', run: isPrivate },
];
const KEYS_ARE_OFF = skipped('Signed metadata is off, because SIGNING_KEYS_FILE is unset. Set it to turn metadata on.');

function areMeant({ misspelt }: DoctorContext): Finding {
  if (misspelt.length === 0) return ok('All settings have known names.');
  const named = misspelt.map(({ name, meant }) => `${name} (did you mean ${meant}?)`).join(', ');
  return warning(`Unknown settings: ${named}.`, 'Correct the names of these settings, or unset them.');
}

/** Reads the limit of this shell, which should equal the service's. */
async function areEnough(maxConnections: number): Promise<Finding> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const limit = Number(/^Max open files +(\d+)/m.exec(limits)?.[1]);
  if (!Number.isSafeInteger(limit))
    return skipped('This system does not report how many files a process may open. Check its limit yourself.');
  if (limit >= maxConnections + OTHER_FILES) return ok(`A process may open ${limit} files.`);
  const fix = `Raise the limit (ulimit -n, LimitNOFILE), or set MAX_CONNECTIONS below ${Math.max(limit - OTHER_FILES, 1)}.`;
  return fault(`A process may open ${limit} files, but MAX_CONNECTIONS is ${maxConnections}, which needs more.`, fix);
}

async function shareTheirStore({ db, config: { jobs } }: DoctorContext): Promise<Finding> {
  const { rows } = await sql<{ machines: number }>`
    select count(distinct case when client_addr is null or client_addr in ('127.0.0.1', '::1', inet_server_addr())
                               then 'the database' else host(client_addr) end)::int as machines
    from pg_stat_activity
    where application_name = 'speechgate' and usesysid = (select oid from pg_roles where rolname = current_user)`.execute(
    db,
  );
  const machines = rows[0]?.machines ?? 0;
  if (machines <= 1) return ok('Only one machine uses the database, so AUDIO_STORE may be a folder.');
  if (parseAudioStoreSetting(jobs.audioStore)?.kind !== 'file')
    return ok(`${machines} machines use the database, and share the bucket in AUDIO_STORE.`);
  const fix = 'Set AUDIO_STORE to a bucket (s3://…), or share its folder between the machines.';
  return warning(`${machines} machines use the database, but AUDIO_STORE is a folder on this machine.`, fix);
}

/** Words and keyboard sequences that a random secret does not contain. */
const PLACEHOLDER =
  /secret|passw|change.?me|example|placeholder|default|dummy|sample|sandbox|test|your.?(own|key)|openssl|xxxx|1234567|abcdefg|qwerty/i;
/** 32 random hex digits have fewer once in 300,000 times. */
const MIN_DIFFERENT = 9;
const WELL_KNOWN_PASSWORDS = /^(|postgres|password|speechgate|speechgate_app|secret|admin|root|1234.*|change.?me)$/i;
const SANDBOX_KEYS = 'sandbox-keys.json';

interface Secret {
  readonly name: string;
  readonly value: string;
}

function secretsOf({ quotes, jobs, feedback }: Config): Secret[] {
  const of = (name: string, values: readonly string[] = []) => values.map((value) => ({ name, value }));
  return [
    ...of('QUOTE_SECRET', quotes?.secrets),
    ...of('JOB_SIGNING_SECRET', jobs.signingSecrets),
    ...of('FEEDBACK_SECRET', feedback?.secrets),
  ];
}

async function sandboxSecrets({ config: { dataDir }, isSandbox }: DoctorContext): Promise<ReadonlySet<unknown>> {
  if (isSandbox) return new Set();
  const text = await readFile(join(dataDir, SANDBOX_KEYS), 'utf8').catch(() => '{}');
  try {
    return new Set(Object.values(JSON.parse(text)));
  } catch {
    return new Set();
  }
}

async function areStrong(context: DoctorContext): Promise<Finding> {
  const secrets = secretsOf(context.config);
  const ofSandbox = await sandboxSecrets(context);
  const fix =
    'Create new secrets with openssl rand -hex 32. Write each in its setting as NEW,OLD, and remove OLD when ' +
    'everything signed with it has expired.';
  const namesOf = (found: readonly Secret[]) => [...new Set(found.map(({ name }) => name))].join(', ');
  const known = secrets.filter(({ value }) => ofSandbox.has(value));
  if (known.length > 0) return fault(`${namesOf(known)}: a secret comes from the sandbox and is not safe.`, fix);
  const weak = secrets.filter(({ value }) => PLACEHOLDER.test(value) || new Set(value).size < MIN_DIFFERENT);
  if (weak.length > 0) return fault(`${namesOf(weak)}: a secret looks weak and may be guessed.`, fix);
  return ok(secrets.length > 0 ? 'No secret in the settings looks weak.' : 'The settings contain no secret.');
}

function isGoodPassword({ hostname, username, password: written, searchParams }: URL): Finding {
  const isHere = ['', 'localhost', '127.0.0.1', '[::1]'].includes(hostname);
  const password = written || (searchParams.get('password') ?? '');
  const isWeak = WELL_KNOWN_PASSWORDS.test(password) || password === username;
  if (!isWeak) return ok('The password in DATABASE_URL is not a well-known one.');
  if (password === '') return ok('DATABASE_URL contains no password.');
  const fix = 'Create a password with openssl rand -hex 16. Set it with alter role … password, and in DATABASE_URL.';
  return (isHere ? warning : fault)('The password in DATABASE_URL is well-known and can be guessed.', fix);
}

const DAY_MS = 86_400_000;
const WARNING_DAYS = 30;
const FAULT_DAYS = 7;
const OTHERS = 0o077;
/** The service's own group may read its keys, as of a mounted secret. */
const ALL_BUT_GROUP_READS = 0o037;

function judgeTime({ config: { signingKeys }, now }: DoctorContext): Finding {
  if (!signingKeys) return KEYS_ARE_OFF;
  const { keyId, validUntil } = currentKey(signingKeys);
  const fix = 'Run speechgate keys, copy SIGNING_KEYS_FILE to all replicas, and restart them.';
  const daysLeft = validUntil ? Math.floor((validUntil.getTime() - now()) / DAY_MS) : Number.POSITIVE_INFINITY;
  if (daysLeft < FAULT_DAYS) return fault(`The signing key ${keyId} expires in ${counted(daysLeft, 'day')}.`, fix);
  if (daysLeft < WARNING_DAYS) return warning(`The signing key ${keyId} expires in ${counted(daysLeft, 'day')}.`, fix);
  const lasts = validUntil ? `is valid for ${daysLeft} more days` : 'is valid until it is rotated';
  return ok(`The signing key ${keyId} ${lasts}.`);
}

async function isPrivate({ config: { signingKeys }, keysFile }: DoctorContext): Promise<Finding> {
  if (!signingKeys || !keysFile) return KEYS_ARE_OFF;
  if (process.platform === 'win32')
    return ok(
      'Not checked, because Windows has no file modes. Check yourself who can read and change SIGNING_KEYS_FILE.',
    );
  const { mode, gid } = await stat(keysFile);
  const summary = `SIGNING_KEYS_FILE has mode ${(mode & 0o777).toString(8).padStart(4, '0')}`;
  const isOwnGroup = [process.getegid?.(), ...(process.getgroups?.() ?? [])].includes(gid);
  if ((mode & (isOwnGroup ? ALL_BUT_GROUP_READS : OTHERS)) === 0) return ok(`${summary}.`);
  return fault(
    `${summary}, so other users of this machine can read or replace the keys.`,
    'Run chmod 600 on the file that SIGNING_KEYS_FILE names.',
  );
}
