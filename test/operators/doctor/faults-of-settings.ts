import { mkdir, writeFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { type Cases, untilTheEnd } from './case.ts';
import { OTHER_MACHINE } from './scene.ts';

/** What is wrong with the settings by themselves. */
export const FAULTS_OF_SETTINGS: Cases = {
  'a misspelt setting': {
    check: 'settings',
    state: 'warning',
    message: /QUOTE_SECRETS \(QUOTE_SECRET\?\)/,
    make: () => ({ own: { QUOTE_SECRETS: 'x' } }),
  },
  'fewer file descriptors than connections': {
    check: 'file-descriptors',
    state: 'fault',
    message: /MAX_CONNECTIONS is 1000000/,
    skip: process.platform === 'linux' ? false : 'only Linux tells',
    make: () => ({ own: { MAX_CONNECTIONS: '1000000' } }),
  },
  'a second machine with audio in a folder': {
    check: 'replicas',
    state: 'warning',
    message: /^2 machines/,
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
    check: 'secrets',
    state: 'fault',
    message: /^JOB_SIGNING_SECRET: .* guessed/,
    make: () => ({ own: { JOB_SIGNING_SECRET: 'change-me-change-me-change-me-please' } }),
  },
  'a secret of one letter': {
    check: 'secrets',
    state: 'fault',
    message: /^QUOTE_SECRET: .* guessed/,
    make: ({ env }) => ({ own: { QUOTE_SECRET: `${env.QUOTE_SECRET},${'k'.repeat(64)}` } }),
  },
  'a sandbox secret': {
    check: 'secrets',
    state: 'fault',
    message: /^FEEDBACK_SECRET: a secret of the sandbox/,
    make: async ({ env, folder }) => {
      const dataDir = join(folder, 'of-a-sandbox');
      await mkdir(dataDir);
      await writeFile(join(dataDir, 'sandbox-keys.json'), JSON.stringify({ feedbackSecret: env.FEEDBACK_SECRET }));
      return { own: { DATA_DIR: dataDir } };
    },
  },
  'a well-known database password': {
    check: 'database-password',
    state: 'warning',
    message: /well-known/,
    make: async (scene, t) => {
      const url = new URL(scene.env.DATABASE_URL ?? '');
      await untilTheEnd(
        t,
        scene,
        "alter role speechgate_app password 'changeme'",
        `alter role speechgate_app password '${url.password}'`,
      );
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
