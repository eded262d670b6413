import { randomBytes } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { parseAudioStoreSetting } from '../../config/store-setting.ts';
import { isClockError, StoreError } from '../../speech/store/audio-store.ts';
import { openAudioStore } from '../../speech/store/open-store.ts';
import { type Check, type DoctorOptions, type Finding, fault, ok, warning } from './check.ts';

const SIZE = 4_096;
const STORE_LIMIT_MS = 90_000;

export function storageChecks({ config: { jobs } }: DoctorOptions): readonly Check[] {
  const store = parseAudioStoreSetting(jobs.audioStore);
  return [
    { name: 'audio-store', limitMs: STORE_LIMIT_MS, run: () => keepsAudio(jobs.audioStore) },
    { name: 'audio-links', run: () => areSigned(jobs.signingSecrets) },
    store?.kind === 'file'
      ? { name: 'disk', run: async () => judgeRoom(await roomOf(store.path)) }
      : { name: 'disk', run: () => ok('AUDIO_STORE is a bucket.') },
  ];
}

async function keepsAudio(setting: string): Promise<Finding> {
  const store = openAudioStore(setting);
  const key = `doctor/${randomBytes(16).toString('hex')}`;
  const audio = randomBytes(SIZE);
  let doing = 'written';
  try {
    await store.put(key, audio, 'audio/mpeg');
    doing = 'read';
    const stored = await store.open(key);
    if (!stored || !(await buffer(stored.stream)).equals(audio)) {
      return fault(
        'The audio store did not return what was written to it.',
        'Set AUDIO_STORE to another store: this one loses audio.',
      );
    }
    doing = 'deleted';
    await store.delete(key);
    const left = await store.open(key);
    left?.stream.destroy();
    if (left) return fault('The audio store still returns audio that was deleted.', storeFix(setting));
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const { name, code, message } = (error.cause ?? {}) as { name?: string; code?: string; message?: string };
    const full = error.reason === 'full' ? ': the audio store is full' : '';
    const cause = code ?? (name === 'Error' ? message : name);
    const fix = isClockError(error.cause)
      ? 'Synchronize the clocks of this machine and the store by NTP.'
      : storeFix(setting);
    return fault(`Audio can't be ${doing}${full}${cause === undefined ? '' : ` (${cause})`}.`, fix);
  } finally {
    if (doing !== 'written') await store.delete(key).catch(() => undefined);
    await store.close();
  }
  return ok('Audio can be written, read and deleted.');
}

const storeFix = (setting: string): string =>
  parseAudioStoreSetting(setting)?.kind === 's3'
    ? 'Allow s3:PutObject, s3:GetObject and s3:DeleteObject in the bucket of AUDIO_STORE. Check AWS_REGION and ' +
      'AWS_ENDPOINT_URL.'
    : "Make the service's user the owner of the folder in AUDIO_STORE. Its disk must be writable and have free space.";

function areSigned(secrets: readonly string[]): Finding {
  if (secrets.length > 0) return ok('Links to audio are signed.');
  const fix = 'Set JOB_SIGNING_SECRET to a secret, for example from: openssl rand -hex 32.';
  return warning('Links to audio are not signed: anyone who has a job id can download its audio.', fix);
}

const MIB = 1024 * 1024;
const FAULT_BYTES = 256 * MIB;
const WARNING_BYTES = 2048 * MIB;
const WARNING_SHARE = 0.05;

interface Room {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Reads the disk of the folder, or of its nearest existing parent. */
async function roomOf(folder: string): Promise<Room> {
  try {
    const { bavail, blocks, bsize } = await statfs(folder);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch (error) {
    const parent = dirname(folder);
    const isAbsent = ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');
    if (!isAbsent || parent === folder) throw error;
    return roomOf(parent);
  }
}

export function judgeRoom({ freeBytes, totalBytes }: Room): Finding {
  const fix = 'Free space on the disk, lower AUDIO_RETENTION_SECONDS, or set AUDIO_STORE to a bucket (s3://…).';
  const space = `${gib(freeBytes)} of ${gib(totalBytes)} are free on the disk of the stored audio`;
  if (freeBytes < FAULT_BYTES) return fault(`${space}.`, fix);
  if (freeBytes < WARNING_BYTES || freeBytes < totalBytes * WARNING_SHARE) return warning(`${space}.`, fix);
  return ok(`${space}.`);
}

const gib = (bytes: number): string => `${(bytes / 1024 / MIB).toFixed(1)} GiB`;
