import { NO_WHOLE_NUMBER, type Settings } from './setting.ts';

const UPSTREAM = { SPEECH_BASE_URL: 'http://speech.internal/v1' };

/** Of the provider of speech and the catalogue. */
export const SPEECH_SETTINGS: Settings = {
  CATALOG_FILE: {
    read: (config) => config.catalog.defaultModel.id,
    absent: 'provider-a/tts-1',
    accepted: { 'src/config/catalog-default.json': 'provider-a/tts-1' },
    refused: ['no-such-file.json', 'package.json'],
  },
  SPEECH_BASE_URL: {
    read: (config) => config.speech?.baseUrl,
    absent: undefined,
    accepted: {
      'http://speech.internal/v1': 'http://speech.internal/v1',
      'https://speech.internal/api/v1/': 'https://speech.internal/api/v1',
    },
    refused: [
      'embedded:',
      'speech.internal/v1',
      'ftp://speech.internal/v1',
      'https://speech.internal',
      'https://speech.internal/v2',
      'https://speech.internal/v1?key=1',
    ],
  },
  SPEECH_API_KEY: {
    read: (config) => config.speech?.apiKey,
    absent: undefined,
    accepted: { key: 'key' },
    refused: ['two\nlines', 'kéy'],
    beside: UPSTREAM,
  },
  SPEECH_CONCURRENCY: {
    read: (config) => config.speech?.concurrency,
    absent: 256,
    accepted: { '1': 1, '10000': 10_000 },
    refused: ['0', '10001', ...NO_WHOLE_NUMBER],
    beside: UPSTREAM,
  },
  SPEECH_TIMEOUT_MS: {
    read: (config) => config.speech?.timeoutMs,
    absent: 45_000,
    accepted: { '100': 100, '600000': 600_000 },
    refused: ['99', '600001', ...NO_WHOLE_NUMBER],
    beside: UPSTREAM,
  },
};
