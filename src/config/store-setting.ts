import { resolve } from 'node:path';

export type AudioStoreSetting =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 's3'; readonly bucket: string; readonly prefix: string };

const FILE = /^file:(?<path>.+)$/;
const S3 = /^s3:\/\/(?<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(?<prefix>[A-Za-z0-9/_.-]{0,200}))?$/;

/** Reads `AUDIO_STORE`: `file:PATH` or `s3://bucket/prefix`. Returns undefined if malformed. */
export function parseAudioStoreSetting(setting: string): AudioStoreSetting | undefined {
  const path = FILE.exec(setting)?.groups?.path;
  if (path !== undefined) return { kind: 'file', path: resolve(path) };
  const { bucket, prefix = '' } = S3.exec(setting)?.groups ?? {};
  const segments = prefix.split('/').filter(Boolean);
  if (bucket === undefined || segments.includes('.') || segments.includes('..')) return undefined;
  return { kind: 's3', bucket, prefix: segments.join('/') };
}
