import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import { openAudioStore } from '../audio/open-store.ts';
import { parseAudioStoreSetting } from '../audio/store-setting.ts';
import type { JobsConfig } from '../settings/jobs-settings.ts';
import { type Area, type Finding, fault, ok, warning } from './check.ts';

const SIZE = 4_096;
/** Three calls of a bucket, each with its own patience. */
const LIMIT_MS = 90_000;

/** Whether the audio store writes, reads and deletes, and whether links to its audio are signed. */
export function audioChecks({ audioStore, signingSecrets }: JobsConfig): Area {
  const store = openAudioStore(audioStore);
  return {
    checks: [
      { name: 'audio-store', limitMs: LIMIT_MS, run: () => keepsAudio(store, audioStore) },
      { name: 'audio-links', run: async () => areSigned(signingSecrets) },
    ],
    close: () => store.close(),
  };
}

async function keepsAudio(store: AudioStore, setting: string): Promise<Finding> {
  const key = `doctor/${randomBytes(16).toString('hex')}`;
  const audio = randomBytes(SIZE);
  let doing = 'written';
  try {
    await store.put(key, audio, 'audio/mpeg');
    doing = 'read';
    const stored = await store.open(key);
    if (!stored || !(await buffer(stored.stream)).equals(audio)) {
      return fault('What was written comes back as something else.', 'Use another store: this one loses audio.');
    }
    doing = 'deleted';
    await store.delete(key);
    const left = await store.open(key);
    left?.stream.destroy();
    if (left) return fault('What was deleted is still there.', fixOf(setting));
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const { name, code } = (error.cause ?? {}) as { name?: string; code?: string };
    const full = error.reason === 'full' ? ': it is full' : '';
    const told = code ?? name;
    return fault(`Audio can't be ${doing}${full}${told === undefined ? '' : ` (${told})`}.`, fixOf(setting));
  } finally {
    if (doing !== 'written') await store.delete(key).catch(() => undefined);
  }
  return ok('The store writes, reads and deletes.');
}

const fixOf = (setting: string): string =>
  parseAudioStoreSetting(setting)?.kind === 's3'
    ? 'Give the credentials s3:PutObject, s3:GetObject and s3:DeleteObject in the bucket of AUDIO_STORE, and look at ' +
      'AWS_REGION and AWS_ENDPOINT_URL.'
    : 'Have the folder of AUDIO_STORE belong to the user of the service, on a disk that is writable and has room.';

function areSigned(secrets: readonly string[]): Finding {
  if (secrets.length > 0) return ok('Links to audio are signed.');
  const fix = 'Set JOB_SIGNING_SECRET, such as of openssl rand -hex 32.';
  return warning('Links to audio are not signed: whoever has the id of a job hears it.', fix);
}
