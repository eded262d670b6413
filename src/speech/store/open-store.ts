import { parseAudioStoreSetting } from '../../config/store-setting.ts';
import type { OutsideCalls } from '../../observability/outside.ts';
import type { AudioStore, DatedAudio } from './audio-store.ts';
import { FileAudioStore } from './file-store.ts';
import { S3AudioStore } from './s3-store.ts';

/** Connects on first use. @throws TypeError for a setting that names no store */
export const openAudioStore = (setting: string, calls?: OutsideCalls): AudioStore =>
  calls ? measured(openUnmeasured(setting), calls) : openUnmeasured(setting);

function openUnmeasured(setting: string): AudioStore {
  const parsed = parseAudioStoreSetting(setting);
  if (!parsed) throw new TypeError('AUDIO_STORE must be file:PATH or s3://bucket/prefix.');
  if (parsed.kind === 'file') return new FileAudioStore(parsed.path);
  const endpoint = process.env.AWS_ENDPOINT_URL_S3?.trim() || process.env.AWS_ENDPOINT_URL?.trim() || undefined;
  return new S3AudioStore({ bucket: parsed.bucket, prefix: parsed.prefix, endpoint });
}

function measured(store: AudioStore, calls: OutsideCalls): AudioStore {
  const datedOf = (dated: DatedAudio): DatedAudio => ({
    put: (key, audio, mimeType) => calls.measure('put', () => dated.put(key, audio, mimeType)),
    open: (key, range) => calls.measure('open', () => dated.open(key, range)),
    minutes: (before) => calls.measure('list', () => dated.minutes(before)),
    deleteMinute: (minute) => calls.measure('delete', () => dated.deleteMinute(minute)),
  });
  return {
    put: (key, audio, mimeType) => calls.measure('put', () => store.put(key, audio, mimeType)),
    open: (key, range) => calls.measure('open', () => store.open(key, range)),
    delete: (key) => calls.measure('delete', () => store.delete(key)),
    dated: { x402: datedOf(store.dated.x402), prepaid: datedOf(store.dated.prepaid) },
    ...(store.room && { room: store.room.bind(store) }),
    ...(store.tryWrite && { tryWrite: store.tryWrite.bind(store) }),
    close: () => store.close(),
  };
}
