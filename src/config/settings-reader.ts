export interface SettingFault {
  readonly name: string;
  readonly problem: string;
  readonly fix: string;
}

const MIN_SECRET_BYTES = 32;
const HTTP = ['http:', 'https:'];
const HEADER_TEXT = /^[\x20-\x7e]+$/;

/** Reads settings and collects their faults (R47). A blank value counts as absent. */
export class SettingsReader {
  readonly faults: SettingFault[] = [];
  readonly names = new Set<string>();
  readonly #secrets = new Map<string, string>();
  readonly #env: NodeJS.ProcessEnv;

  constructor(env: NodeJS.ProcessEnv) {
    this.#env = env;
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
    return this.#env[name]?.trim() || undefined;
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
    return this.fault(name, 'is not a whole number in its range', `Set it to a whole number from ${min} to ${max}.`);
  }

  url(name: string, value: string | undefined, protocols: readonly string[], example: string): URL | undefined {
    if (value === undefined) return undefined;
    const parsed = URL.canParse(value) ? new URL(value) : undefined;
    if (parsed && protocols.includes(parsed.protocol) && hasDecodableLogin(parsed)) return parsed;
    return this.fault(name, 'is not a valid URL', `Set it to a URL such as ${example}.`);
  }

  /** A credential that is sent as an HTTP header. */
  headerText(name: string): string | undefined {
    const value = this.text(name);
    if (value === undefined || HEADER_TEXT.test(value)) return value;
    return this.fault(name, 'holds a character that no HTTP header takes', 'Copy it again: it is ASCII on one line.');
  }

  httpUrl(name: string, value: string | undefined, example: string): URL | undefined {
    return this.url(name, value, HTTP, example);
  }

  origin(name: string, example: string): string | undefined {
    const parsed = this.httpUrl(name, this.text(name), example);
    if (!parsed) return undefined;
    if (parsed.pathname === '/' && !parsed.search && !parsed.hash && !parsed.username) return parsed.origin;
    return this.fault(name, 'is more than an origin', `Give scheme, host and port only, such as ${example}.`);
  }

  secrets(name: string): string[] {
    const secrets = this.list(name);
    if (secrets.some((secret) => Buffer.byteLength(secret) < MIN_SECRET_BYTES)) {
      const fix = 'Use longer secrets, for example from: openssl rand -hex 32.';
      this.fault(name, `holds a secret of less than ${MIN_SECRET_BYTES} bytes`, fix);
      return secrets;
    }
    const other = secrets.map((secret) => this.#secrets.get(secret)).find((found) => found !== undefined);
    if (other !== undefined) {
      const fix = 'Give each setting its own, for example from: openssl rand -hex 32.';
      this.fault(name, `holds a secret that ${other} holds too`, fix);
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
