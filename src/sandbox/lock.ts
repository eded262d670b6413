import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { hasCode } from './postgres/system-error.ts';

export interface Lock {
  release(): Promise<void>;
}

/** macOS and the BSDs lock a file as they open it. Node has no name for it. */
const O_EXLOCK = 0x20;

/**
 * Makes this process the only one that uses the directory, until `release` or its own end, however that comes: the lock
 * is one that the system takes back itself. Undefined when another process holds it.
 */
export async function lockDirectory(directory: string): Promise<Lock | undefined> {
  const name = `speechgate-${createHash('sha256').update(directory).digest('hex')}`;
  if (process.platform === 'linux') return listenAlone(`\0${name}`);
  if (process.platform === 'win32') return listenAlone(`\\\\.\\pipe\\${name}`);
  return openAlone(join(directory, 'lock'));
}

/** An abstract socket of Linux or a named pipe of Windows: it has one owner, and is gone with it. */
async function listenAlone(address: string): Promise<Lock | undefined> {
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(address, resolve);
    });
  } catch (error) {
    if (hasCode(error, 'EADDRINUSE')) return undefined;
    throw error;
  }
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

async function openAlone(path: string): Promise<Lock | undefined> {
  const { O_RDWR, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    const file = await open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_EXLOCK, 0o600);
    return { release: () => file.close() };
  } catch (error) {
    if (hasCode(error, 'EAGAIN', 'EWOULDBLOCK')) return undefined;
    throw error;
  }
}
