import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../settings/config.ts';
import { type Area, type Finding, fault, ok, warning } from './check.ts';
import type { Patient } from './patient.ts';

/** Words of people in what should be random; the last ones are what keyboards and examples begin with. */
const PLACEHOLDER =
  /secret|passw|change.?me|example|placeholder|default|dummy|sample|sandbox|test|your.?(own|key)|openssl|xxxx|1234567|abcdefg|qwerty/i;
/** What guessing costs an attacker at least. 32 random hex digits have 128, by their letters some 115. */
const MIN_BITS = 100;
const WELL_KNOWN_PASSWORDS = /^(|postgres|password|speechgate|speechgate_app|secret|admin|root|1234.*|change.?me)$/i;
/** What the sandbox has made for itself. */
const SANDBOX_KEYS = 'sandbox-keys.json';

interface Secret {
  readonly name: string;
  readonly value: string;
}

/** Whether the secrets that we choose can be guessed, are used twice, or are those of the sandbox. */
export function secretChecks({ config, isSandbox }: Pick<Patient, 'config' | 'isSandbox'>): Area {
  return {
    checks: [
      { name: 'secrets', run: async () => areStrong(secretsOf(config), await sandboxSecrets(config, isSandbox)) },
      { name: 'database-password', run: async () => isGoodPassword(new URL(config.databaseUrl)) },
    ],
  };
}

function secretsOf({ quotes, jobs, feedback }: Config): Secret[] {
  const of = (name: string, values: readonly string[] = []) => values.map((value) => ({ name, value }));
  return [
    ...of('QUOTE_SECRET', quotes?.secrets),
    ...of('JOB_SIGNING_SECRET', jobs.signingSecrets),
    ...of('FEEDBACK_SECRET', feedback?.secrets),
  ];
}

/** Those that a sandbox keeps in the same DATA_DIR; none for its own settings. */
async function sandboxSecrets({ dataDir }: Config, isSandbox: boolean): Promise<ReadonlySet<unknown>> {
  if (isSandbox) return new Set();
  const text = await readFile(join(dataDir, SANDBOX_KEYS), 'utf8').catch(() => '{}');
  try {
    return new Set(Object.values(JSON.parse(text)));
  } catch {
    return new Set();
  }
}

function areStrong(secrets: readonly Secret[], ofSandbox: ReadonlySet<unknown>): Finding {
  const fix =
    'Make new ones with openssl rand -hex 32; put them before the old ones, and take those out a while later.';
  const namesOf = (found: readonly Secret[]) => [...new Set(found.map(({ name }) => name))].join(', ');
  const known = secrets.filter(({ value }) => ofSandbox.has(value));
  if (known.length > 0) return fault(`${namesOf(known)}: a secret of the sandbox, which is no secret.`, fix);
  const weak = secrets.filter(({ value }) => PLACEHOLDER.test(value) || bitsOf(value) < MIN_BITS);
  if (weak.length > 0) return fault(`${namesOf(weak)}: a secret that can be guessed.`, fix);
  const shared = secrets.filter(({ name, value }) => secrets.some((o) => o.value === value && o.name !== name));
  if (shared.length > 0) return warning(`${namesOf(shared)}: one secret for several purposes.`, fix);
  return ok(secrets.length > 0 ? 'None of them can be guessed.' : 'None is set.');
}

/** The entropy of the text by how often each of its letters is in it: of random text an estimate, of other text a bound. */
export function bitsOf(text: string): number {
  const letters = [...text];
  const counts = new Map<string, number>();
  for (const letter of letters) counts.set(letter, (counts.get(letter) ?? 0) + 1);
  const perLetter = [...counts.values()].reduce(
    (sum, n) => sum - (n / letters.length) * Math.log2(n / letters.length),
    0,
  );
  return perLetter * shortestPeriod(text);
}

/** Of a text that repeats its beginning, the length of that. */
function shortestPeriod(text: string): number {
  const period = (text + text).indexOf(text, 1);
  return period === -1 ? text.length : period;
}

/** A database of this machine may ask for none. */
function isGoodPassword({ hostname, username, password: written, searchParams }: URL): Finding {
  const isHere = ['', 'localhost', '127.0.0.1', '[::1]'].includes(hostname);
  const password = written || (searchParams.get('password') ?? '');
  const isWeak = WELL_KNOWN_PASSWORDS.test(password) || password === username;
  if (!isWeak) return ok("The database's password is no well-known one.");
  if (password === '') return ok('DATABASE_URL holds no password.');
  const fix = 'alter role … password, to one of openssl rand -hex 16, and put it into DATABASE_URL.';
  return (isHere ? warning : fault)('The password in DATABASE_URL is a well-known one.', fix);
}
