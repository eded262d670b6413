import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { serve } from '../../support/listening.ts';
import { type Cases, passOn } from './case.ts';
import { BUCKET, writeKeys } from './scene.ts';

const DAY_MS = 86_400_000;

/** Whether this process may mount a file system of its own, such as a small one. */
function canMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'speechgate-mount-'));
  try {
    return mountSmall(folder) && spawnSync('umount', [folder]).status === 0;
  } finally {
    rmdirSync(folder);
  }
}

const mountSmall = (folder: string): boolean =>
  spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', folder]).status === 0;

/** What is wrong with keys, mail, stored audio and disks. */
export const FAULTS_OF_KEEPING: Cases = {
  'a signing key that expires within a week': {
    finds: ['fault', 'signing-keys', /expires in 4 days/],
    make: async ({ folder }) => ({ all: { SIGNING_KEYS_FILE: await endingKeys(folder, 5) } }),
  },
  'a signing key that expires within a month': {
    finds: ['warning', 'signing-keys', /expires in 19 days/],
    make: async ({ folder }) => ({ all: { SIGNING_KEYS_FILE: await endingKeys(folder, 20) } }),
  },
  'a key file that others can read': {
    finds: ['fault', 'signing-keys-file', /mode 0644/],
    make: async ({ folder }) => ({
      all: { SIGNING_KEYS_FILE: await writeKeys(folder, 'open.json', undefined, 0o644) },
    }),
  },
  'an unreachable mail server': {
    finds: ['fault', 'mail', /can't be used: E/],
    make: () => ({ own: { SMTP_URL: 'smtp://speech:word@127.0.0.1:1' } }),
  },
  'a wrong mail server password': {
    finds: ['fault', 'mail', /refuses our credentials \(status 535\)/],
    make: ({ env }) => ({ own: { SMTP_URL: (env.SMTP_URL ?? '').replace(/:[^:@]*@/, ':wrong@') } }),
  },
  'a recipient unknown to the mail server': {
    finds: ['fault', 'mail', /to nobody@speech\.example \(status 550\)/],
    make: () => ({ own: { FEEDBACK_TO: 'operator@speech.example, nobody@speech.example' } }),
  },
  'an audio folder that can’t be created': {
    finds: ['fault', 'audio-store', /can't be written \(ENOTDIR\)/],
    make: async ({ folder }) => {
      await writeFile(join(folder, 'a-file'), '');
      return { own: { AUDIO_STORE: `file:${join(folder, 'a-file', 'audio')}` } };
    },
  },
  'a missing bucket': {
    finds: ['fault', 'audio-store', /can't be written \(NoSuchBucket\)/],
    make: () => ({ own: { AUDIO_STORE: 's3://no-such-bucket/audio' } }),
  },
  'a bucket without permission to delete': {
    finds: ['fault', 'audio-store', /can't be deleted \(AccessDenied\)/],
    make: async ({ s3 }, t) => {
      const denied = '<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>';
      const endpoint = await serve(t, (incoming, response) => {
        if (incoming.method !== 'DELETE') return passOn(s3.endpoint, incoming, response);
        response.writeHead(403, { 'content-type': 'application/xml' }).end(denied);
      });
      process.env.AWS_ENDPOINT_URL = endpoint;
      t.teardown(() => (process.env.AWS_ENDPOINT_URL = s3.endpoint));
      return { own: { AUDIO_STORE: `s3://${BUCKET}/audio` } };
    },
  },
  'unsigned audio links': {
    finds: ['warning', 'audio-links', /not signed/],
    make: () => ({ own: { JOB_SIGNING_SECRET: '' } }),
  },
  'an almost full disk': {
    finds: ['fault', 'disk', /^0\.1 GiB of 0\.1 GiB are free/],
    skip: canMount() ? false : 'this process may not mount a file system',
    make: async ({ folder }, t) => {
      const audio = join(folder, 'small');
      await mkdir(audio);
      assert.ok(mountSmall(audio));
      t.teardown(() => spawnSync('umount', [audio]));
      return { own: { AUDIO_STORE: `file:${audio}` } };
    },
  },
};

const endingKeys = (folder: string, days: number): Promise<string> =>
  writeKeys(folder, `ending-in-${days}.json`, ({ keys: [current] }) => {
    if (current) current.validUntil = new Date(Date.now() + days * DAY_MS).toISOString();
  });
