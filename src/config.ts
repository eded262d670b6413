import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import { getAddress } from 'viem';
import { parseAudioStoreSetting } from './audio/setting.ts';
import { type Mailbox, readMailboxes } from './feedback/mailbox.ts';
import { CLIENT_STALL_MS } from './http/connections.ts';
import { type WorkLimits, workLimits } from './limits/unpaid-work.ts';
import { findMisspelt, type Misspelling } from './misspelt.ts';
import { leaseSeconds } from './payments/balance-holds.ts';
import { MAX_STREAM_MS } from './payments/stream-deadlines.ts';
import { MAX_WAITING_BYTES } from './speech/audio-memory.ts';
import { type Catalog, CatalogError, loadCatalog } from './speech/catalog.ts';
import { isLiveKey } from './top-up/live-key.ts';
import type { NodeUrls } from './x402/chain.ts';
import { type Asset, DEFAULT_ASSET, DEFAULT_NETWORK } from './x402/network.ts';
import { type Payee, PayeeError, parsePayees } from './x402/payees.ts';
import { PREPAID } from './x402/prepaid.ts';
import { parseSigningKeys, type SigningKey, SigningKeysError } from './x402/signing-keys.ts';

export interface CardConfig {
  readonly secretKey: string;
  /** Whether the key is a live one. */
  readonly livemode: boolean;
  /** Origin of a compatible server; the processor's own when undefined. */
  readonly apiBase: string | undefined;
  readonly checkoutOrigin: string;
  readonly topUpMaxCents: number;
  /** Purchases that one address may begin within TOP_UP_WINDOW_SECONDS. */
  readonly topUpRateLimitMax: number;
}

export interface SpeechConfig {
  /** `embedded:` or the base of an OpenAI-compatible API. */
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** Longest synthesis that is collected before it is paid, and longest silence of one that is heard meanwhile. */
  readonly timeoutMs: number;
  /** What no setting changes. */
  readonly streaming: StreamingConfig;
}

export interface StreamingConfig {
  /** Longest time of one stream, however much audio flows. */
  readonly totalMs: number;
  /** How long a hold stands without a renewal. */
  readonly leaseSeconds: number;
  /** Audio that may wait for callers before new work is refused. */
  readonly waitingBytes: number;
}

export interface X402Config {
  readonly facilitatorUrl: string;
  readonly facilitatorToken: string | undefined;
  readonly payees: readonly Payee[];
  readonly asset: Asset;
  /** The status of the answer to a request for speech that says nothing at all (R59). */
  readonly probeAnswer: 400 | 402;
  /** Nodes of the chain. Undefined while direct payment and deposits are off (R58). */
  readonly rpcUrls: NodeUrls | undefined;
  /** How long a deposit's request waits for the confirmations of its transfer (specification, "Limits"). */
  readonly confirmationTimeoutMs: number;
}

export interface QuoteConfig {
  /** The first one signs. */
  readonly secrets: readonly [string, ...string[]];
  readonly ttlSeconds: number;
}

export interface JobsConfig {
  /** Jobs that a process runs at the same time. */
  readonly concurrency: number;
  /** How long audio is kept. */
  readonly audioRetentionSeconds: number;
  /** `file:PATH` or `s3://bucket/prefix`. */
  readonly audioStore: string;
  /** The first signs audio links, all verify them; none leaves them unsigned. */
  readonly signingSecrets: readonly string[];
}

export interface MailConfig {
  readonly smtpUrl: string;
  readonly from: Mailbox;
  readonly to: readonly Mailbox[];
}

export interface FeedbackConfig {
  /** The first signs challenges, all verify them. */
  readonly secrets: readonly string[];
  readonly challengeTtlSeconds: number;
  /** Feedback of all wallets together that is stored within any hour. */
  readonly maxPerHour: number;
  readonly retentionDays: number;
  /** Undefined where feedback is stored, but not mailed. */
  readonly mail: MailConfig | undefined;
}

export interface Config {
  readonly host: string;
  readonly port: number;
  /** Public origin, without a trailing slash. */
  readonly baseUrl: string;
  readonly serviceName: string;
  readonly databaseUrl: string;
  readonly dataDir: string;
  readonly catalog: Catalog;
  readonly speech: SpeechConfig | undefined;
  readonly card: CardConfig | undefined;
  readonly x402: X402Config | undefined;
  readonly quotes: QuoteConfig | undefined;
  /** Keys of the signed metadata. */
  readonly signingKeys: readonly SigningKey[] | undefined;
  readonly jobs: JobsConfig;
  readonly feedback: FeedbackConfig | undefined;
  /** Addresses and networks (CIDR) of the proxies in front. */
  readonly trustProxy: readonly string[];
  /** The persistent rate limit: requests per bucket within any window. */
  readonly rateLimit: { readonly max: number; readonly windowSeconds: number };
  /** Requests per client and minute that the edge lets through. */
  readonly edgeRateLimitMax: number;
  readonly maxConnections: number;
  /** How long a client may read nothing while there are bytes for it. */
  readonly clientStallMs: number;
  /** How much upstream work may be done without being paid (R21b); `maxUnsettledMs` is for all direct payers together. */
  readonly unpaidWork: WorkLimits & { readonly maxUnsettledMs: number };
  readonly reconcileIntervalMs: number;
  /** How long a capture is repeated while the database is away; less than a lease outlasts its synthesis. */
  readonly capturePatienceMs: number;
  readonly adminPort: number | undefined;
  /** Where the operators' listener listens, and the host names that it answers to, in lower case. */
  readonly admin: { readonly host: string; readonly names: readonly string[] };
  readonly logLevel: string;
}

/** A setting that is missing or invalid, and what to do about it. */
export interface ConfigFault {
  readonly name: string;
  readonly problem: string;
  readonly fix: string;
}

export type ConfigResult = ({ readonly config: Config } | { readonly faults: readonly ConfigFault[] }) & {
  /** Variables that look like settings and are none. */
  readonly misspelt: readonly Misspelling[];
};

const CAPTURE_PATIENCE_MS = 15_000;
const MIN_SECRET_BYTES = 32;
const DEFAULT_SPEECH_TIMEOUT_MS = 45_000;
/** Upstream work that may be lost to failed settlements within an hour (R21b). */
const MAX_UNSETTLED_MS = 1_800_000;
const SMTP_EXAMPLE = 'smtp://user:password@mail.example:587';
const MAIL_SETTINGS = ['SMTP_URL', 'FEEDBACK_FROM', 'FEEDBACK_TO'];
const HOST_NAME = /^(?!.*\.\d+$)[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$/;
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

/** Reads the environment into one validated object, or names every fault at once (R47). Blank counts as absent. */
export function readConfig(env: NodeJS.ProcessEnv): ConfigResult {
  const faults: ConfigFault[] = [];
  const fault = (name: string, problem: string, fix: string): undefined => {
    faults.push({ name, problem, fix });
  };

  const names = new Set<string>();
  const text = (name: string): string | undefined => {
    names.add(name);
    return env[name]?.trim() || undefined;
  };

  const required = (name: string, fix: string): string => text(name) ?? fault(name, 'is not set', fix) ?? '';

  const integer = (name: string, min: number, max: number): number | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    return fault(name, 'is not a whole number in its range', `Set it to a whole number from ${min} to ${max}.`);
  };

  const url = (name: string, value: string | undefined, protocols: string[], example: string): URL | undefined => {
    if (value === undefined) return undefined;
    const parsed = URL.canParse(value) ? new URL(value) : undefined;
    if (parsed && protocols.includes(parsed.protocol)) return parsed;
    return fault(name, 'is not a valid URL', `Set it to a URL such as ${example}.`);
  };

  const origin = (name: string, example: string): string | undefined => {
    const parsed = url(name, text(name), ['http:', 'https:'], example);
    if (!parsed) return undefined;
    if (parsed.pathname === '/' && !parsed.search && !parsed.hash && !parsed.username) return parsed.origin;
    return fault(name, 'is more than an origin', `Give scheme, host and port only, such as ${example}.`);
  };

  const host = text('HOST') ?? '127.0.0.1';
  const port = integer('PORT', 1, 65535) ?? 8080;

  const databaseUrl = required('DATABASE_URL', 'Set it to postgres://user:password@host:5432/database.');
  if (databaseUrl)
    url('DATABASE_URL', databaseUrl, ['postgres:', 'postgresql:'], 'postgres://user:password@host/database');

  const dataDir = resolve(text('DATA_DIR') ?? './data');
  const catalog = readCatalog();
  const speech = readSpeech();
  const card = readCard();
  const x402 = readX402();
  const quotes = readQuotes();
  const signingKeys = readSigningKeys();

  const trustProxy = (text('TRUST_PROXY') ?? '')
    .split(',')
    .map((entry) => entry.trim())
    .filter(Boolean);
  if (!trustProxy.every(isNetwork)) {
    fault('TRUST_PROXY', 'holds something that is no address or network', 'List CIDRs, such as 10.0.0.0/8,192.0.2.7.');
  }

  const serviceName = text('SERVICE_NAME') ?? 'speechgate';
  if (!/^[\x20-\x7e]{1,100}$/.test(serviceName) || /["\\]/.test(serviceName)) {
    fault('SERVICE_NAME', 'is not plain text', 'Use up to 100 ASCII characters without quotes and backslashes.');
  }

  const logLevel = text('LOG_LEVEL') ?? 'info';
  if (!LOG_LEVELS.includes(logLevel)) {
    fault('LOG_LEVEL', 'is no log level', `Use one of ${LOG_LEVELS.join(', ')}.`);
  }

  const config: Config = {
    host,
    port,
    baseUrl: origin('BASE_URL', 'https://speech.example') ?? `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}`,
    serviceName,
    databaseUrl,
    dataDir,
    catalog: catalog as Catalog,
    speech,
    card,
    x402,
    quotes,
    signingKeys,
    jobs: readJobs(),
    feedback: readFeedback(),
    trustProxy,
    rateLimit: {
      max: integer('RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 30,
      windowSeconds: integer('RATE_LIMIT_WINDOW_SECONDS', 1, 86_400) ?? 60,
    },
    edgeRateLimitMax: integer('EDGE_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 600,
    maxConnections: integer('MAX_CONNECTIONS', 1, 1_000_000) ?? 10_000,
    clientStallMs: CLIENT_STALL_MS,
    unpaidWork: { ...workLimits(speech?.timeoutMs ?? DEFAULT_SPEECH_TIMEOUT_MS), maxUnsettledMs: MAX_UNSETTLED_MS },
    reconcileIntervalMs: integer('RECONCILE_INTERVAL_MS', 100, 86_400_000) ?? 15_000,
    capturePatienceMs: CAPTURE_PATIENCE_MS,
    adminPort: integer('ADMIN_PORT', 1, 65535),
    admin: readAdmin(),
    logLevel,
  };
  const misspelt = findMisspelt(Object.keys(env), names);
  return faults.length > 0 ? { faults, misspelt } : { config, misspelt };

  function readCatalog(): Catalog | undefined {
    try {
      return loadCatalog(text('CATALOG_FILE'));
    } catch (error) {
      if (!(error instanceof CatalogError)) throw error;
      return fault(
        'CATALOG_FILE',
        `can't be used: ${error.message}`,
        'Correct the file, or unset it for the built-in one.',
      );
    }
  }

  function readSpeech(): SpeechConfig | undefined {
    const baseUrl = text('SPEECH_BASE_URL');
    const apiKey = text('SPEECH_API_KEY');
    const timeoutMs = integer('SPEECH_TIMEOUT_MS', 100, 600_000) ?? DEFAULT_SPEECH_TIMEOUT_MS;
    if (baseUrl === undefined) {
      if (apiKey)
        fault('SPEECH_BASE_URL', 'is not set, but SPEECH_API_KEY is', 'Set it to the base of the speech API.');
      return undefined;
    }
    const streaming: StreamingConfig = {
      totalMs: MAX_STREAM_MS,
      leaseSeconds: leaseSeconds(timeoutMs),
      waitingBytes: MAX_WAITING_BYTES,
    };
    if (baseUrl === 'embedded:') return { baseUrl, apiKey: undefined, timeoutMs, streaming };
    const parsed = url('SPEECH_BASE_URL', baseUrl, ['http:', 'https:'], 'https://speech.internal/v1, or embedded:');
    if (parsed && !/\/v1\/?$/.test(parsed.href)) {
      fault('SPEECH_BASE_URL', 'does not end in /v1', 'Give the base of the API, such as https://speech.internal/v1.');
    }
    return { baseUrl: baseUrl.replace(/\/$/, ''), apiKey, timeoutMs, streaming };
  }

  function readCard(): CardConfig | undefined {
    const secretKey = text('STRIPE_SECRET_KEY');
    const apiBase = origin('STRIPE_API_BASE', 'http://127.0.0.1:12111');
    const checkoutOrigin = origin('CHECKOUT_ORIGIN', 'https://checkout.stripe.com') ?? 'https://checkout.stripe.com';
    const topUpMaxCents = integer('TOP_UP_MAX_CENTS', 500, 99_999_999) ?? 100_000;
    const topUpRateLimitMax = integer('TOP_UP_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 10;
    if (secretKey === undefined) {
      if (apiBase)
        fault('STRIPE_SECRET_KEY', 'is not set, but STRIPE_API_BASE is', 'Set the secret key, or unset the base.');
      return undefined;
    }
    if (!/^(sk|rk)_(test|live)_\S+$/.test(secretKey)) {
      fault(
        'STRIPE_SECRET_KEY',
        'is no secret key',
        'Use a key that starts with sk_test_, sk_live_, rk_test_ or rk_live_.',
      );
    }
    return { secretKey, livemode: isLiveKey(secretKey), apiBase, checkoutOrigin, topUpMaxCents, topUpRateLimitMax };
  }

  function readX402(): X402Config | undefined {
    const payTo = text('X402_PAY_TO');
    const http = ['http:', 'https:'];
    const facilitator = url(
      'X402_FACILITATOR_URL',
      text('X402_FACILITATOR_URL'),
      http,
      'https://facilitator.example/x402',
    );
    const facilitatorToken = text('X402_FACILITATOR_AUTH');
    const rpcUrls = readNodes();
    const asset = readAsset();
    const probeAnswer = text('X402_PROBE_ANSWER') ?? '400';
    if (probeAnswer !== '400' && probeAnswer !== '402') {
      fault('X402_PROBE_ANSWER', 'is neither 400 nor 402', 'Set it to 402 to be listed by directories, or unset it.');
    }
    const payees = payTo === undefined ? undefined : readPayees(payTo);
    const hasFacilitator = text('X402_FACILITATOR_URL') !== undefined;
    if (payTo !== undefined && !hasFacilitator) {
      fault('X402_FACILITATOR_URL', 'is not set, but X402_PAY_TO is', 'Set it to the base of the facilitator.');
    }
    if (payTo === undefined && hasFacilitator) {
      fault('X402_PAY_TO', 'is not set, but X402_FACILITATOR_URL is', 'Set it to the address that is to be paid.');
    }
    if (facilitatorToken && !hasFacilitator) {
      fault('X402_FACILITATOR_URL', 'is not set, but X402_FACILITATOR_AUTH is', 'Set it, or unset the token.');
    }
    if (!facilitator || !payees || !asset) return undefined;
    const confirmationTimeoutMs = PREPAID.depositTimeoutSeconds * 1000;
    return {
      facilitatorUrl: facilitator.href,
      ...{ facilitatorToken, payees, asset, rpcUrls, confirmationTimeoutMs },
      probeAnswer: probeAnswer === '402' ? 402 : 400,
    };
  }

  function readNodes(): NodeUrls | undefined {
    const nodes = (text('X402_RPC_URL') ?? '')
      .split(',')
      .map((entry) => entry.trim())
      .filter(Boolean)
      .map((entry) => url('X402_RPC_URL', entry, ['http:', 'https:'], 'https://mainnet.base.org')?.href);
    const [first, ...others] = [...new Set(nodes.filter((node) => node !== undefined))];
    return first === undefined ? undefined : [first, ...others];
  }

  function readAsset(): Asset | undefined {
    const network = text('X402_NETWORK') ?? DEFAULT_NETWORK;
    const chainId = Number(/^eip155:([1-9]\d{0,14})$/.exec(network)?.[1]);
    if (!chainId) fault('X402_NETWORK', 'names no EVM network', `Set it to a CAIP-2 name such as ${DEFAULT_NETWORK}.`);
    const address = text('X402_ASSET') ?? DEFAULT_ASSET;
    if (!/^0x[0-9a-fA-F]{40}$/.test(address)) {
      return fault('X402_ASSET', 'is no address', `Set it to the address of the token, such as ${DEFAULT_ASSET}.`);
    }
    return {
      network: network as Asset['network'],
      chainId,
      address: getAddress(address.toLowerCase()),
      name: text('X402_ASSET_NAME') ?? 'USD Coin',
      version: text('X402_ASSET_VERSION') ?? '2',
    };
  }

  function readPayees(setting: string): readonly Payee[] | undefined {
    try {
      return parsePayees(setting);
    } catch (error) {
      if (!(error instanceof PayeeError)) throw error;
      const fix = 'List address[:status[:validFrom[:validUntil]]], exactly one with the status current.';
      return fault('X402_PAY_TO', error.message, fix);
    }
  }

  function readQuotes(): QuoteConfig | undefined {
    const [first, ...rest] = secrets('QUOTE_SECRET');
    const ttlSeconds = integer('QUOTE_TTL_SECONDS', 1, 86_400) ?? 300;
    return first === undefined ? undefined : { secrets: [first, ...rest], ttlSeconds };
  }

  function readSigningKeys(): readonly SigningKey[] | undefined {
    const file = text('SIGNING_KEYS_FILE');
    if (file === undefined) return undefined;
    const fix = 'Make or rotate the file with: npm run keys.';
    let content: string;
    try {
      content = readFileSync(file, 'utf8');
    } catch {
      return fault('SIGNING_KEYS_FILE', "names a file that can't be read", fix);
    }
    try {
      return parseSigningKeys(content, new Date());
    } catch (error) {
      if (!(error instanceof SigningKeysError)) throw error;
      return fault('SIGNING_KEYS_FILE', `names a file that ${error.message}`, fix);
    }
  }

  function readJobs(): JobsConfig {
    const audioStore = text('AUDIO_STORE') ?? `file:${join(dataDir, 'audio')}`;
    if (!parseAudioStoreSetting(audioStore)) {
      fault('AUDIO_STORE', 'names no store', 'Set it to file:PATH or s3://bucket/prefix.');
    }
    return {
      concurrency: integer('JOB_CONCURRENCY', 1, 100) ?? 2,
      audioRetentionSeconds: integer('AUDIO_RETENTION_SECONDS', 1, 315_360_000) ?? 604_800,
      audioStore,
      signingSecrets: secrets('JOB_SIGNING_SECRET'),
    };
  }

  /** The first entry is the address to listen on; if it is a name, the listener answers to it too. */
  function readAdmin(): Config['admin'] {
    const [host = '127.0.0.1', ...names] = (text('ADMIN_HOST') ?? '')
      .split(',')
      .map((entry) => entry.trim().toLowerCase())
      .filter(Boolean);
    const isName = (entry: string) => HOST_NAME.test(entry) && isIP(entry) === 0;
    if ((isIP(host) === 0 && !isName(host)) || !names.every(isName)) {
      const fix = 'Set it to the address to listen on, then the host names to answer to: 0.0.0.0,metrics.internal.';
      fault('ADMIN_HOST', 'holds something that is no address or host name', fix);
    }
    return { host, names: isName(host) ? [host, ...names] : names };
  }

  function readFeedback(): FeedbackConfig | undefined {
    const feedback = {
      secrets: secrets('FEEDBACK_SECRET'),
      challengeTtlSeconds: integer('FEEDBACK_CHALLENGE_TTL_SECONDS', 1, 900) ?? 600,
      maxPerHour: integer('FEEDBACK_MAX_PER_HOUR', 1, 1_000_000) ?? 60,
      retentionDays: integer('FEEDBACK_RETENTION_DAYS', 1, 36_500) ?? 365,
      mail: readMail(),
    };
    if (feedback.secrets.length > 0) return feedback;
    const given = MAIL_SETTINGS.find((name) => text(name));
    if (given)
      fault('FEEDBACK_SECRET', `is not set, but ${given} is`, 'Set a secret, such as of openssl rand -hex 32.');
    return undefined;
  }

  /** All three settings, or none. */
  function readMail(): MailConfig | undefined {
    const given = MAIL_SETTINGS.find((name) => text(name));
    if (!given) return undefined;
    const smtpUrl = url('SMTP_URL', mailSetting('SMTP_URL', given), ['smtp:', 'smtps:'], SMTP_EXAMPLE);
    if (smtpUrl?.hostname === '') fault('SMTP_URL', 'names no host', `Set it to a URL such as ${SMTP_EXAMPLE}.`);
    const from = mailboxes('FEEDBACK_FROM', given);
    if (from.length > 1) fault('FEEDBACK_FROM', 'names several addresses', 'Give the one that mail comes from.');
    const to = mailboxes('FEEDBACK_TO', given);
    return smtpUrl && from[0] && { smtpUrl: smtpUrl.href, from: from[0], to };
  }

  function mailSetting(name: string, given: string): string | undefined {
    return text(name) ?? fault(name, `is not set, but ${given} is`, 'Set it, or unset all mail settings.');
  }

  function mailboxes(name: string, given: string): Mailbox[] {
    const value = mailSetting(name, given);
    const found = value === undefined ? [] : readMailboxes(value);
    return found ?? fault(name, 'holds something that is no mail address', 'Use user@host or Name <user@host>.') ?? [];
  }

  function secrets(name: string): string[] {
    const list = (text(name) ?? '')
      .split(',')
      .map((secret) => secret.trim())
      .filter(Boolean);
    if (list.some((secret) => Buffer.byteLength(secret) < MIN_SECRET_BYTES)) {
      fault(
        name,
        `holds a secret of less than ${MIN_SECRET_BYTES} bytes`,
        'Use longer ones, such as of openssl rand -hex 32.',
      );
    }
    return list;
  }
}

function isNetwork(entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
}

/** The faults as the text that a start which can't go on prints. */
export function describeFaults(faults: readonly ConfigFault[]): string {
  return faults.map(({ name, problem, fix }) => `${name} ${problem}. ${fix}`).join('\n');
}
