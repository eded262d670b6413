import { resolve } from 'node:path';
import { DATABASE_URL, NO_ORIGIN, NO_WHOLE_NUMBER, type Settings } from './setting.ts';

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
  PORT: {
    read: (config) => config.port,
    absent: 8080,
    accepted: { '1': 1, '65535': 65_535 },
    refused: ['0', '65536', ...NO_WHOLE_NUMBER],
  },
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
  RECONCILE_INTERVAL_MS: {
    read: (config) => config.reconcileIntervalMs,
    absent: 15_000,
    accepted: { '100': 100, '86400000': 86_400_000 },
    refused: ['99', '86400001', ...NO_WHOLE_NUMBER],
  },
  WEB_CONCURRENCY: {
    read: (config) => config.webConcurrency,
    absent: 1,
    accepted: { '1': 1, '64': 64 },
    refused: ['0', '65', ...NO_WHOLE_NUMBER],
  },
  LOG_LEVEL: {
    read: (config) => config.logLevel,
    absent: 'info',
    accepted: { silent: 'silent', trace: 'trace' },
    refused: ['verbose', 'INFO'],
  },
};
