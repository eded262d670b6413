import { resolve } from 'node:path';
import { DATABASE_URL, NO_ORIGIN, NO_WHOLE_NUMBER, type Settings, wholeNumber } from './setting.ts';

const NO_PAGE = ['acme.example', 'ftp://acme.example', 'javascript:alert(1)'];

/** Of the process itself. */
export const PROCESS_SETTINGS: Settings = {
  DATABASE_URL: {
    read: (config) => config.databaseUrl,
    accepted: { [DATABASE_URL]: DATABASE_URL, 'postgresql:///speech': 'postgresql:///speech' },
    refused: ['', '127.0.0.1:5432', 'mysql://127.0.0.1/speech', 'postgres://a:%zz@127.0.0.1/speech'],
  },
  DATABASE_NAMED_STATEMENTS: {
    read: (config) => config.namedStatements,
    absent: true,
    accepted: { on: true, off: false },
    refused: ['yes', 'OFF'],
  },
  HOST: { read: (config) => config.host, absent: '127.0.0.1', accepted: { '0.0.0.0': '0.0.0.0' }, refused: [] },
  PORT: wholeNumber((config) => config.port, [1, 65_535], 8080),
  BASE_URL: {
    read: (config) => config.baseUrl,
    absent: 'http://127.0.0.1:8080',
    accepted: { 'https://speech.example': 'https://speech.example', 'http://a.example:81/': 'http://a.example:81' },
    refused: NO_ORIGIN,
  },
  SERVICE_NAME: {
    read: (config) => config.serviceName,
    absent: 'speechgate',
    accepted: { 'My voices': 'My voices' },
    refused: ['a"b', 'a\\b', 'ä', 'a\nb', 'x'.repeat(101)],
  },
  SERVICE_CONTACT: {
    read: (config) => config.contact,
    absent: undefined,
    accepted: {
      'help@speech.example': { email: 'help@speech.example' },
      'https://speech.example/contact': { url: 'https://speech.example/contact' },
    },
    refused: ['help', 'a@b.example, c@d.example', 'Help <help@speech.example>', 'ftp://speech.example', 'javascript:x'],
  },
  SELLER_NAME: {
    read: (config) => config.seller.name,
    absent: undefined,
    accepted: { 'Acme Müller GmbH': 'Acme Müller GmbH' },
    refused: ['a\nb', 'x'.repeat(101)],
  },
  SERVICE_URL: {
    read: (config) => config.seller.url,
    absent: undefined,
    accepted: { 'https://acme.example': 'https://acme.example/' },
    refused: NO_PAGE,
  },
  TERMS_URL: {
    read: (config) => config.seller.termsUrl,
    absent: undefined,
    accepted: { 'https://acme.example/terms': 'https://acme.example/terms' },
    refused: NO_PAGE,
  },
  PRIVACY_URL: {
    read: (config) => config.seller.privacyUrl,
    absent: undefined,
    accepted: { 'https://acme.example/privacy?lang=en': 'https://acme.example/privacy?lang=en' },
    refused: NO_PAGE,
  },
  DATA_DIR: {
    read: (config) => config.dataDir,
    absent: resolve('data'),
    accepted: { '/var/lib/speech': '/var/lib/speech', elsewhere: resolve('elsewhere') },
    refused: [],
  },
  RECONCILE_INTERVAL_MS: wholeNumber((config) => config.reconcileIntervalMs, [100, 86_400_000], 15_000),
  WEB_CONCURRENCY: wholeNumber((config) => config.webConcurrency, [1, 64], 1),
  LOG_LEVEL: {
    read: (config) => config.logLevel,
    absent: 'info',
    accepted: { silent: 'silent', trace: 'trace' },
    refused: ['verbose', 'INFO'],
  },
};

/** Of proxies, rate limits and connections. */
export const EDGE_SETTINGS: Settings = {
  TRUST_PROXY: {
    read: (config) => config.trustProxy,
    absent: [],
    accepted: {
      '10.0.0.0/8, 192.0.2.7,': ['10.0.0.0/8', '192.0.2.7'],
      '2001:db8::/128,::1': ['2001:db8::/128', '::1'],
    },
    refused: [
      '0.0.0.0/0',
      '::/0',
      '1',
      'true',
      'proxy.example',
      '10.0.0.0/33',
      '::1/129',
      '10.0.0.0/8/8',
      '10.0.0.0/',
      '10.0.0.1,no',
    ],
  },
  RATE_LIMIT_MAX: wholeNumber((config) => config.rateLimit.max, [1, 1_000_000_000], 30),
  RATE_LIMIT_WINDOW_SECONDS: wholeNumber((config) => config.rateLimit.windowSeconds, [1, 86_400], 60),
  EDGE_RATE_LIMIT_MAX: wholeNumber((config) => config.edgeRateLimitMax, [1, 1_000_000_000], 600),
  MAX_CONNECTIONS: wholeNumber((config) => config.maxConnections, [1, 1_000_000], 10_000),
  STOP_DRAIN_MS: wholeNumber((config) => config.stopDrainMs, [0, 600_000], 0),
};

/** Of the operators' listener. */
export const ADMIN_SETTINGS: Settings = {
  ADMIN_PORT: {
    read: (config) => config.adminPort,
    absent: undefined,
    accepted: { '9000': 9000 },
    refused: ['0', '65536', ...NO_WHOLE_NUMBER],
  },
  ADMIN_HOST: {
    read: (config) => config.admin,
    absent: { host: '127.0.0.1', names: [] },
    accepted: {
      '0.0.0.0': { host: '0.0.0.0', names: [] },
      '::': { host: '::', names: [] },
      'Admin.internal': { host: 'admin.internal', names: ['admin.internal'] },
      '10.0.0.7, metrics.internal,Ops': { host: '10.0.0.7', names: ['metrics.internal', 'ops'] },
      ',': { host: '127.0.0.1', names: [] },
    },
    refused: [
      '*',
      '127.0.0.1:9000',
      '[::1]',
      'http://127.0.0.1',
      '127.0.0.1,*.internal',
      '127.0.0.1,10.0.0.8',
      '300.1.1.1',
    ],
  },
};
