import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { findMisspelt, type Misspelling } from '../lib/misspelt.ts';
import { type CardConfig, readCard } from './card-settings.ts';
import type { Catalog } from './catalog.ts';
import { isSocketPath, MAX_SOCKET_PATH_BYTES, readAdmin, readEdge } from './edge-settings.ts';
import { type FeedbackConfig, readFeedback } from './feedback-settings.ts';
import { readMailboxes } from './mailbox.ts';
import { type SettingFault, SettingsReader } from './settings-reader.ts';
import type { SigningKey } from './signing-keys.ts';
import { DEFAULT_SPEECH_TIMEOUT_MS, readCatalog, readJobs, readSpeech, type SpeechConfig } from './speech-settings.ts';
import { holdLeaseSeconds, MAX_WAITING_CAPTURES, type WorkLimits, workLimits } from './work-limits.ts';
import { type QuoteConfig, readQuotes, readSigningKeys, readX402, type X402Config } from './x402-settings.ts';

export interface Config extends ReturnType<typeof readEdge>, ReturnType<typeof readAdmin> {
  readonly host: string;
  readonly port: number;
  /** What all paths are relative to (R41). */
  readonly baseUrl: string;
  readonly isBaseUrlSet: boolean;
  readonly serviceName: string;
  readonly contact: { readonly email: string } | { readonly url: string } | undefined;
  readonly seller: ReturnType<typeof readSeller>;
  readonly databaseUrl: string;
  readonly namedStatements: boolean;
  readonly dataDir: string;
  readonly catalog: Catalog;
  readonly speech: SpeechConfig | undefined;
  readonly card: CardConfig | undefined;
  readonly x402: X402Config | undefined;
  readonly quotes: QuoteConfig | undefined;
  readonly signingKeys: readonly SigningKey[] | undefined;
  readonly jobs: ReturnType<typeof readJobs>;
  readonly feedback: FeedbackConfig | undefined;
  /** Bounds of unpaid upstream work (R21b). `maxUnsettledMs` is the sum over all direct payers. */
  readonly unpaidWork: WorkLimits & { readonly maxUnsettledMs: number };
  /** How long this process relies on a hold's lease that it could not renew: the ledger's lease, or less in a test. */
  readonly holdLeaseSeconds: number;
  readonly maxWaitingCaptures: number;
  readonly reconcileIntervalMs: number;
  readonly logLevel: string;
  readonly webConcurrency: number;
}

export type ConfigResult = (
  | { readonly outcome: 'read'; readonly config: Config }
  | { readonly outcome: 'faulty'; readonly faults: readonly SettingFault[] }
) & { readonly misspelt: readonly Misspelling[] };

/** Upstream work that failed settlements may cost within an hour (R21b). */
const MAX_UNSETTLED_MS = 1_800_000;
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

/** Reads the environment into one validated object, or reports every fault at once (R47). */
export function readConfig(env: NodeJS.ProcessEnv): ConfigResult {
  const reader = new SettingsReader(env);
  const host = reader.text('HOST') ?? '127.0.0.1';
  const port = reader.integer('PORT', 1, 65535) ?? 8080;
  const dataDir = resolve(reader.text('DATA_DIR') ?? './data');
  const catalog = readCatalog(reader);
  const speech = readSpeech(reader, catalog);
  const namedStatements = reader.text('DATABASE_NAMED_STATEMENTS') ?? 'on';
  if (namedStatements !== 'on' && namedStatements !== 'off') {
    reader.fault('DATABASE_NAMED_STATEMENTS', 'is neither on nor off', 'Set it to on or off.');
  }
  const baseUrl = reader.origin('BASE_URL', 'https://speech.example');
  const origin = `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
  if (isSocketPath(host) && !reader.text('BASE_URL'))
    reader.missing('BASE_URL', 'HOST', 'HOST is a socket, so set BASE_URL to the public origin of its proxy.');
  if (isSocketPath(host) && Buffer.byteLength(host) > MAX_SOCKET_PATH_BYTES)
    reader.fault('HOST', `is a path of more than ${MAX_SOCKET_PATH_BYTES} bytes`, 'Set HOST to a shorter path.');
  const speechTimeoutMs = speech?.timeoutMs ?? DEFAULT_SPEECH_TIMEOUT_MS;
  const config: Config = {
    host,
    port,
    baseUrl: baseUrl ?? origin,
    isBaseUrlSet: baseUrl !== undefined,
    serviceName: readServiceName(reader),
    contact: readContact(reader),
    seller: readSeller(reader),
    databaseUrl: readDatabaseUrl(reader),
    namedStatements: namedStatements === 'on',
    dataDir,
    catalog: catalog as Catalog,
    speech,
    card: readCard(reader),
    x402: readX402(reader),
    quotes: readQuotes(reader),
    signingKeys: readSigningKeys(reader),
    jobs: readJobs(reader, dataDir),
    feedback: readFeedback(reader),
    ...readEdge(reader),
    unpaidWork: { ...workLimits(speechTimeoutMs), maxUnsettledMs: MAX_UNSETTLED_MS },
    holdLeaseSeconds: holdLeaseSeconds(speechTimeoutMs),
    maxWaitingCaptures: MAX_WAITING_CAPTURES,
    reconcileIntervalMs: reader.integer('RECONCILE_INTERVAL_MS', 100, 86_400_000) ?? 15_000,
    ...readAdmin(reader),
    logLevel: readLogLevel(reader),
    webConcurrency: reader.integer('WEB_CONCURRENCY', 1, 64) ?? 1,
  };
  if (config.adminPort === port && overlap(host, config.admin.host)) {
    reader.fault('ADMIN_PORT', 'is the same port as PORT', 'Set ADMIN_PORT or PORT to another port.');
  }
  const misspelt = findMisspelt(Object.keys(env), reader.names);
  if (reader.faults.length > 0) return { outcome: 'faulty', faults: reader.faults, misspelt };
  return { outcome: 'read', config, misspelt };
}

const ANY_HOST = ['0.0.0.0', '::'];

const overlap = (one: string, other: string): boolean =>
  !isSocketPath(one) && (one === other || ANY_HOST.includes(one) || ANY_HOST.includes(other));

/** What callers can't reach, or should not pay at: an address made up from HOST and PORT. */
export function baseUrlWarning({ isBaseUrlSet, baseUrl, host, card, x402 }: Config): string | undefined {
  if (isBaseUrlSet || !(ANY_HOST.includes(host) || card || x402)) return undefined;
  return `BASE_URL is unset, so links and payments contain ${baseUrl}. Set it to the origin that callers use, such as https://speech.example`;
}

function readDatabaseUrl(reader: SettingsReader): string {
  const url = reader.required('DATABASE_URL', 'Set it to postgres://user:password@host:5432/database.');
  const parsed = url
    ? reader.url('DATABASE_URL', url, ['postgres:', 'postgresql:'], 'postgres://user:password@host/database')
    : undefined;
  for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
    const path = parsed?.searchParams.get(name);
    if (path) reader.file('DATABASE_URL', path, `Correct ${name} in it.`);
  }
  return url;
}

function readServiceName(reader: SettingsReader): string {
  const name = reader.text('SERVICE_NAME') ?? 'speechgate';
  if (!/^[\x20-\x7e]{1,100}$/.test(name) || /["\\]/.test(name)) {
    const fix = 'Use up to 100 ASCII characters without quotes and backslashes.';
    reader.fault('SERVICE_NAME', 'is too long, or has a character that is not allowed', fix);
  }
  return name;
}

function readContact(reader: SettingsReader): Config['contact'] {
  const contact = reader.text('SERVICE_CONTACT');
  if (contact === undefined) return undefined;
  const [mailbox, ...others] = readMailboxes(contact) ?? [];
  if (mailbox?.name === '' && others.length === 0) return { email: mailbox.address };
  const url = URL.canParse(contact) ? new URL(contact) : undefined;
  if (url?.protocol === 'https:' || url?.protocol === 'http:') return { url: url.href };
  const fix = 'Set it to an email address such as support@example.com, or to the URL of a page.';
  return reader.fault('SERVICE_CONTACT', 'is neither an email address without a name nor an http or https URL', fix);
}

/** Who sells here, shown to people. */
function readSeller(reader: SettingsReader) {
  const name = reader.text('SELLER_NAME');
  if (name !== undefined && !/^\P{C}{1,100}$/u.test(name)) {
    reader.fault('SELLER_NAME', 'is too long, or has a control character', 'Use up to 100 characters on one line.');
  }
  const link = (setting: string, path: string) =>
    reader.httpUrl(setting, reader.text(setting), `https://acme.example${path}`)?.href;
  return {
    name,
    url: link('SERVICE_URL', '/'),
    termsUrl: link('TERMS_URL', '/terms'),
    privacyUrl: link('PRIVACY_URL', '/privacy'),
  };
}

function readLogLevel(reader: SettingsReader): string {
  const level = reader.text('LOG_LEVEL') ?? 'info';
  if (!LOG_LEVELS.includes(level))
    reader.fault('LOG_LEVEL', 'is not a log level', `Use one of ${LOG_LEVELS.join(', ')}.`);
  return level;
}

export const describeFaults = (faults: readonly SettingFault[]): string =>
  faults.map(({ name, problem, fix }) => `${name} ${problem}. ${fix}`).join('\n');
