import { mkdir, writeFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import type { Cases } from './case.ts';
import { OTHER_MACHINE } from './scene.ts';

/** What is wrong with the settings by themselves. */
export const FAULTS_OF_SETTINGS: Cases = {
  'a misspelt setting': {
    finds: ['warning', 'settings', /QUOTE_SECRETS \(did you mean QUOTE_SECRET\?\)/],
    make: () => ({ own: { QUOTE_SECRETS: 'x' } }),
  },
  'fewer file descriptors than connections': {
    finds: ['fault', 'file-descriptors', /MAX_CONNECTIONS is 1000000/],
    skip: process.platform === 'linux' ? false : 'only Linux tells',
    make: () => ({ own: { MAX_CONNECTIONS: '1000000' } }),
  },
  'a second machine with audio in a folder': {
    finds: ['warning', 'replicas', /^2 machines/],
    make: async ({ env }, t) => {
      const client = new pg.Client({
        connectionString: env.DATABASE_URL,
        application_name: 'speechgate',
        stream: elsewhere,
      });
      await client.connect();
      t.teardown(() => client.end());
      return {};
    },
  },
  'a placeholder secret': {
    finds: ['fault', 'secrets', /^JOB_SIGNING_SECRET: .* guessed/],
    make: () => ({ own: { JOB_SIGNING_SECRET: 'change-me-change-me-change-me-please' } }),
  },
  'a sandbox secret': {
    finds: ['fault', 'secrets', /^FEEDBACK_SECRET: a secret comes from the sandbox/],
    make: async ({ env, folder }) => {
      const dataDir = join(folder, 'of-a-sandbox');
      await mkdir(dataDir);
      await writeFile(join(dataDir, 'sandbox-keys.json'), JSON.stringify({ feedbackSecret: env.FEEDBACK_SECRET }));
      return { own: { DATA_DIR: dataDir } };
    },
  },
  'a well-known database password': {
    finds: ['warning', 'database-password', /well-known/],
    make: async (scene, t) => {
      const url = new URL(scene.env.DATABASE_URL ?? '');
      const undo = `alter role speechgate_app password '${url.password}'`;
      t.teardown(() => scene.sql(undo));
      await scene.sql("alter role speechgate_app password 'changeme'");
      url.password = 'changeme';
      return { all: { DATABASE_URL: url.href } };
    },
  },
};

/** A connection of another address of this machine. */
function elsewhere(): Socket {
  const socket = new Socket();
  const connect = socket.connect.bind(socket) as (options: object) => Socket;
  socket.connect = ((port: number, host: string) => connect({ port, host, localAddress: OTHER_MACHINE })) as never;
  return socket;
}
