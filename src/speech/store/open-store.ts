import { parseAudioStoreSetting } from '../../config/store-setting.ts';
import type { AudioStore } from './audio-store.ts';
import { FileAudioStore } from './file-store.ts';
import { S3AudioStore } from './s3-store.ts';

/** Connects on first use. @throws TypeError for a setting that names no store */
export function openAudioStore(setting: string): AudioStore {
  const parsed = parseAudioStoreSetting(setting);
  if (!parsed) throw new TypeError('AUDIO_STORE is neither file:PATH nor s3://bucket/prefix');
  if (parsed.kind === 'file') return new FileAudioStore(parsed.path);
  const endpoint = process.env.AWS_ENDPOINT_URL_S3?.trim() || process.env.AWS_ENDPOINT_URL?.trim() || undefined;
  return new S3AudioStore({ bucket: parsed.bucket, prefix: parsed.prefix, endpoint });
}
