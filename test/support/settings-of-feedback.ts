import { NO_WHOLE_NUMBER, SECRET, type Settings } from './setting.ts';

/** Of feedback and its mail. */
export const FEEDBACK_SETTINGS: Settings = {
  FEEDBACK_SECRET: {
    read: (config) => config.feedback?.secrets,
    absent: undefined,
    accepted: { [SECRET]: [SECRET], [`${SECRET},${'t'.repeat(40)}`]: [SECRET, 't'.repeat(40)], ',': undefined },
    refused: ['s'.repeat(31), `${SECRET},short`],
  },
  FEEDBACK_MAX_PER_HOUR: {
    read: (config) => config.feedback?.maxPerHour,
    absent: 60,
    accepted: { '1': 1, '1000000': 1_000_000 },
    refused: ['0', '1000001', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
  FEEDBACK_RETENTION_DAYS: {
    read: (config) => config.feedback?.retentionDays,
    absent: 365,
    accepted: { '1': 1, '36500': 36_500 },
    refused: ['0', '36501', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
  FEEDBACK_CHALLENGE_TTL_SECONDS: {
    read: (config) => config.feedback?.challengeTtlSeconds,
    absent: 600,
    accepted: { '1': 1, '900': 900 },
    refused: ['0', '901', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
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
