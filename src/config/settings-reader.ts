import { readFileSync } from 'node:fs';

export interface SettingFault {
  readonly name: string;
  readonly problem: string;
  readonly fix: string;
}

const MIN_SECRET_BYTES = 32;
const HTTP = ['http:', 'https:'];
/** Each may be in a file instead, which NAME_FILE names. */
export const SECRETS = [
  ...['DATABASE_URL', 'SPEECH_API_KEY', 'STRIPE_SECRET_KEY', 'STRIPE_WEBHOOK_SECRET', 'X402_FACILITATOR_AUTH'],
  ...['X402_FACILITATOR_KEY_SECRET', 'X402_FACILITATORS', 'X402_RPC_URL'],
  ...['QUOTE_SECRET', 'JOB_SIGNING_SECRET', 'FEEDBACK_SECRET', 'SMTP_URL'],
];
export const HEADER_TEXT = /^[\x20-\x7e]+$/;

/** Reads settings and collects their faults (R47). A blank value counts as absent. */
export class SettingsReader {
  readonly faults: SettingFault[] = [];
  readonly names = new Set<string>();
  readonly #secrets = new Map<string, string>();
  readonly #env: NodeJS.ProcessEnv;
  readonly #fromFiles: NodeJS.ProcessEnv = {};

  constructor(env: NodeJS.ProcessEnv) {
    this.#env = env;
    for (const name of SECRETS) this.readSecretFile(name);
  }

  /** Takes the setting from the file that NAME_FILE names, if that is set. */
  readSecretFile(name: string): void {
    const setting = `${name}_FILE`;
    const path = this.#env[setting]?.trim();
    if (!path) return;
    this.names.add(setting);
    if (this.#env[name]?.trim()) this.fault(setting, `is set, and ${name} is too`, 'Unset one of them.');
    else this.#fromFiles[name] = this.file(setting, path, 'Create that file, with the secret in it.');
  }

  /** The text of a file that a setting names. @param missing the fix if there is none */
  file(name: string, path: string, missing: string): string | undefined {
    try {
      return readFileSync(path, 'utf8');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return this.fault(name, 'names a file that does not exist', missing);
      const problem =
        code === 'EACCES'
          ? "names a file that the service's user may not read"
          : `names a file that can't be read (${code})`;
      const rights = "Let the service's user read the file, for example by its group and mode 0640.";
      return this.fault(name, problem, code === 'EACCES' ? rights : 'Correct the path, or make it a readable file.');
    }
  }

  /** Records a fault. Returns undefined as the setting's value. */
  fault(name: string, problem: string, fix: string): undefined {
    this.faults.push({ name, problem, fix });
  }

  missing(name: string, given: string, fix: string): undefined {
    return this.fault(name, `is not set, but ${given} is`, fix);
  }

  text(name: string): string | undefined {
    this.names.add(name);
    return this.#env[name]?.trim() || this.#fromFiles[name]?.trim() || undefined;
  }

  required(name: string, fix: string): string {
    return this.text(name) ?? this.fault(name, 'is not set', fix) ?? '';
  }

  list(name: string): string[] {
    return (this.text(name) ?? '')
      .split(',')
      .map((entry) => entry.trim())
      .filter(Boolean);
  }

  integer(name: string, min: number, max: number): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    return this.fault(
      name,
      'is not a whole number in the allowed range',
      `Set it to a whole number from ${min} to ${max}.`,
    );
  }

  url(name: string, value: string | undefined, protocols: readonly string[], example: string): URL | undefined {
    if (value === undefined) return undefined;
    const parsed = URL.canParse(value) ? new URL(value) : undefined;
    if (parsed && protocols.includes(parsed.protocol) && hasDecodableLogin(parsed)) return parsed;
    const kind = `a valid ${protocols.join(' or ').replaceAll(':', '')} URL, with user and password percent-encoded`;
    return value === this.text(name)
      ? this.fault(name, `is not ${kind}`, `Set it to a URL such as ${example}.`)
      : this.fault(name, `has an entry that is not ${kind}`, `Write each URL as in ${example}.`);
  }

  /** A credential that is sent as an HTTP header. */
  headerText(name: string): string | undefined {
    const value = this.text(name);
    if (value === undefined || HEADER_TEXT.test(value)) return value;
    return this.fault(
      name,
      'has a character that is not allowed in an HTTP header',
      'Copy it again, as ASCII on one line.',
    );
  }

  httpUrl(name: string, value: string | undefined, example: string): URL | undefined {
    return this.url(name, value, HTTP, example);
  }

  origin(name: string, example: string): string | undefined {
    const parsed = this.httpUrl(name, this.text(name), example);
    if (!parsed) return undefined;
    if (parsed.pathname === '/' && !parsed.search && !parsed.hash && !parsed.username) return parsed.origin;
    return this.fault(name, 'is more than an origin', `Set it to scheme, host and port only, such as ${example}.`);
  }

  secrets(name: string): string[] {
    const secrets = this.list(name);
    if (secrets.some((secret) => Buffer.byteLength(secret) < MIN_SECRET_BYTES)) {
      const fix = 'Use a longer secret, for example from: openssl rand -hex 32.';
      this.fault(name, `has a secret shorter than ${MIN_SECRET_BYTES} bytes`, fix);
      return secrets;
    }
    const other = secrets.map((secret) => this.#secrets.get(secret)).find((found) => found !== undefined);
    if (other !== undefined) {
      const fix = 'Use a different secret for each setting, for example from: openssl rand -hex 32.';
      this.fault(name, `has a secret that is also in ${other}`, fix);
    }
    for (const secret of secrets) this.#secrets.set(secret, name);
    return secrets;
  }
}

function hasDecodableLogin({ username, password }: URL): boolean {
  try {
    decodeURIComponent(username + password);
    return true;
  } catch {
    return false;
  }
}
