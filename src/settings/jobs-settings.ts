import { join } from 'node:path';
import { parseAudioStoreSetting } from '../audio/store-setting.ts';
import type { SettingsReader } from './settings-reader.ts';

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

export function readJobs(reader: SettingsReader, dataDir: string): JobsConfig {
  const audioStore = reader.text('AUDIO_STORE') ?? `file:${join(dataDir, 'audio')}`;
  if (!parseAudioStoreSetting(audioStore)) {
    reader.fault('AUDIO_STORE', 'names no store', 'Set it to file:PATH or s3://bucket/prefix.');
  }
  return {
    concurrency: reader.integer('JOB_CONCURRENCY', 1, 100) ?? 2,
    audioRetentionSeconds: reader.integer('AUDIO_RETENTION_SECONDS', 1, 315_360_000) ?? 604_800,
    audioStore,
    signingSecrets: reader.secrets('JOB_SIGNING_SECRET'),
  };
}
