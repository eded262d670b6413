import type { FileHandle } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock, unlock } from 'fs-native-extensions';
import { openOwnFile } from './private-files.ts';

const TIMEOUT_MS = 30_000;
/** Minimum and maximum pause between attempts; random, so that no process waits for ever. */
const PAUSE_MS = [1, 4] as const;

/** Another process keeps the file locked, because it is stopped or its disk hangs. Nothing was changed. */
export class FileBusyError extends Error {
  constructor(path: string, timeoutMs: number) {
    super(
      `Another process has kept ${path} locked for ${timeoutMs / 1000} s, so nothing was written there. Wait until that process ends, or stop it, then retry. No purchase is repeated or lost.`,
    );
    this.name = 'FileBusyError';
  }
}

/**
 * Locks the open file, so that two within a process exclude each other. Never removed: a new file is another lock. It stays
 * open until it is closed: garbage collection would close its file, and so release a lock that is still needed.
 */
export class FileLock {
  static readonly #open = new Set<FileLock>();
  readonly #file: FileHandle;
  readonly #path: string;

  private constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<FileLock> {
    const lock = new FileLock(path, await openOwnFile(path));
    FileLock.#open.add(lock);
    return lock;
  }

  tryAcquire(): boolean {
    return tryLock(this.#file.fd);
  }

  async acquire(timeoutMs: number = TIMEOUT_MS): Promise<void> {
    const giveUpAt = performance.now() + timeoutMs;
    while (!this.tryAcquire()) {
      if (performance.now() > giveUpAt) throw new FileBusyError(this.#path, timeoutMs);
      await pause();
    }
  }

  release(): void {
    unlock(this.#file.fd);
  }

  async close(): Promise<void> {
    await this.#file.close();
    FileLock.#open.delete(this);
  }
}

/** Runs work while no other holder of the lock runs. Not reentrant. @throws FileBusyError */
export async function withFileLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  const lock = await FileLock.open(path);
  try {
    await lock.acquire();
    return await work();
  } finally {
    await lock.close();
  }
}

export const pause = (): Promise<void> => sleep(PAUSE_MS[0] + Math.random() * (PAUSE_MS[1] - PAUSE_MS[0]));
