import { resolve } from 'node:path';
import { SECRET, type Settings, wholeNumber } from './setting.ts';

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
  SPEECH_CONCURRENCY: wholeNumber((config) => config.speech?.concurrency, [1, 10_000], 256, UPSTREAM),
  SPEECH_TIMEOUT_MS: wholeNumber((config) => config.speech?.timeoutMs, [100, 600_000], 45_000, UPSTREAM),
};

/** Of jobs and their audio. */
export const JOBS_SETTINGS: Settings = {
  AUDIO_STORE: {
    read: (config) => config.jobs.audioStore,
    absent: `file:${resolve('data/audio')}`,
    accepted: { 'file:audio': 'file:audio', 's3://voices/some/prefix': 's3://voices/some/prefix' },
    refused: ['audio', 'file:', 's3://', 's3://UPPER', 's3://voices/../other', 'https://voices.example'],
  },
  PREPAID_AUDIO_MIB_PER_MINUTE: wholeNumber(
    (config) => config.jobs.prepaidAudioBytes / (1024 * 1024),
    [0, 1_000_000],
    256,
  ),
  AUDIO_RETENTION_SECONDS: wholeNumber((config) => config.jobs.audioRetentionSeconds, [1, 315_360_000], 604_800),
  JOB_SIGNING_SECRET: {
    read: (config) => config.jobs.signingSecrets,
    absent: [],
    accepted: {
      [SECRET]: [SECRET],
      [`${SECRET}, ${'t'.repeat(40)},`]: [SECRET, 't'.repeat(40)],
      ['ä'.repeat(16)]: ['ä'.repeat(16)],
      ',': [],
    },
    refused: ['s'.repeat(31), `${SECRET},short`, `short,${SECRET}`],
  },
  JOB_CONCURRENCY: wholeNumber((config) => config.jobs.concurrency, [1, 100], 2),
};

/** Of feedback and its mail. */
export const FEEDBACK_SETTINGS: Settings = {
  FEEDBACK_SECRET: {
    read: (config) => config.feedback?.secrets,
    absent: undefined,
    accepted: { [SECRET]: [SECRET], [`${SECRET},${'t'.repeat(40)}`]: [SECRET, 't'.repeat(40)], ',': undefined },
    refused: ['s'.repeat(31), `${SECRET},short`],
  },
  FEEDBACK_MAX_PER_HOUR: wholeNumber((config) => config.feedback?.maxPerHour, [1, 1_000_000], 60, {
    FEEDBACK_SECRET: SECRET,
  }),
  FEEDBACK_RETENTION_DAYS: wholeNumber((config) => config.feedback?.retentionDays, [1, 36_500], 365, {
    FEEDBACK_SECRET: SECRET,
  }),
  FEEDBACK_CHALLENGE_TTL_SECONDS: wholeNumber((config) => config.feedback?.challengeTtlSeconds, [1, 900], 600, {
    FEEDBACK_SECRET: SECRET,
  }),
  SMTP_URL: {
    read: (config) => config.feedback?.mail?.smtpUrl,
    accepted: {
      'smtp://127.0.0.1:2525': 'smtp://127.0.0.1:2525',
      'smtps://user:p%40ss@mail.example?requireTLS=true': 'smtps://user:p%40ss@mail.example?requireTLS=true',
    },
    refused: ['mail.example', 'http://mail.example', 'smtp:', 'smtp:///x'],
    beside: { FEEDBACK_SECRET: SECRET, FEEDBACK_FROM: 'from@a.example', FEEDBACK_TO: 'to@a.example' },
    half: true,
  },
  FEEDBACK_FROM: {
    read: (config) => config.feedback?.mail?.from,
    accepted: {
      'from@a.example': { name: '', address: 'from@a.example' },
      'The gateway <from@a.example>': { name: 'The gateway', address: 'from@a.example' },
      '"A, B" <from@a.example>': { name: 'A, B', address: 'from@a.example' },
    },
    refused: [
      'nobody',
      '@a.example',
      'from@',
      'a@a.example, b@a.example',
      'a b@c d',
      'A <a>',
      'group: a@a.example, b;',
    ],
    beside: { FEEDBACK_SECRET: SECRET, SMTP_URL: 'smtp://127.0.0.1', FEEDBACK_TO: 'to@a.example' },
    half: true,
  },
  FEEDBACK_TO: {
    read: (config) => config.feedback?.mail?.to,
    accepted: {
      'to@a.example': [{ name: '', address: 'to@a.example' }],
      'to@a.example, Two <two@a.example>': [
        { name: '', address: 'to@a.example' },
        { name: 'Two', address: 'two@a.example' },
      ],
    },
    refused: ['nobody', 'to@a.example, nobody', ',', 'a@a.example\nBcc: b@b.example'],
    beside: { FEEDBACK_SECRET: SECRET, SMTP_URL: 'smtp://127.0.0.1', FEEDBACK_FROM: 'from@a.example' },
    half: true,
  },
};
