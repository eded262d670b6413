import { resolve } from 'node:path';
import { NO_WHOLE_NUMBER, SECRET, type Settings } from './setting.ts';

/** Of jobs and their audio. */
export const JOBS_SETTINGS: Settings = {
  AUDIO_STORE: {
    read: (config) => config.jobs.audioStore,
    absent: `file:${resolve('data/audio')}`,
    accepted: { 'file:audio': 'file:audio', 's3://voices/some/prefix': 's3://voices/some/prefix' },
    refused: ['audio', 'file:', 's3://', 's3://UPPER', 's3://voices/../other', 'https://voices.example'],
  },
  PREPAID_AUDIO_MIB_PER_MINUTE: {
    read: (config) => config.jobs.prepaidAudioBytes / (1024 * 1024),
    absent: 256,
    accepted: { '0': 0, '1000000': 1_000_000 },
    refused: ['-1', '1000001', ...NO_WHOLE_NUMBER],
  },
  AUDIO_RETENTION_SECONDS: {
    read: (config) => config.jobs.audioRetentionSeconds,
    absent: 604_800,
    accepted: { '1': 1, '315360000': 315_360_000 },
    refused: ['0', '315360001', ...NO_WHOLE_NUMBER],
  },
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
  JOB_CONCURRENCY: {
    read: (config) => config.jobs.concurrency,
    absent: 2,
    accepted: { '1': 1, '100': 100 },
    refused: ['0', '101', ...NO_WHOLE_NUMBER],
  },
};
