import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AudioStore } from '../../src/audio/audio-store.ts';
import { openAudioStore } from '../../src/audio/open-store.ts';
import { S3_CREDENTIALS, type S3Server, startS3Server } from '../support/s3-server.ts';

export interface Backend {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** A new handle to the one store. */
  open(): AudioStore;
  /** A store that can be neither reached nor written to. */
  openUnreachable(): Promise<AudioStore>;
}

export function fileBackend(): Backend {
  let directory = '';
  return {
    start: async () => {
      directory = await mkdtemp(join(tmpdir(), 'speechgate-audio-'));
    },
    stop: () => rm(directory, { recursive: true, force: true }),
    open: () => openAudioStore(`file:${join(directory, 'not/yet/made')}`),
    openUnreachable: async () => {
      await writeFile(join(directory, 'file'), '');
      return openAudioStore(`file:${join(directory, 'file/below')}`);
    },
  };
}

export function s3Backend(): Backend {
  let server: S3Server;
  const open = (endpoint: string) => {
    process.env.AWS_ENDPOINT_URL = endpoint;
    return openAudioStore('s3://voices/some/prefix');
  };
  return {
    start: async () => {
      server = await startS3Server('voices');
      Object.assign(process.env, S3_CREDENTIALS);
    },
    stop: async () => {
      for (const name of ['AWS_ENDPOINT_URL', ...Object.keys(S3_CREDENTIALS)]) delete process.env[name];
      await server.stop();
    },
    open: () => open(server.endpoint),
    openUnreachable: async () => {
      const stopped = await startS3Server('voices');
      await stopped.stop();
      return open(stopped.endpoint);
    },
  };
}
