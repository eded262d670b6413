import type { Readable, Writable } from 'node:stream';

/** What a command uses of the process that it runs in. */
export interface CommandProcess {
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: Readable;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  once(signal: 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
}

export type OutputStream = Writable & { readonly isTTY?: boolean };
