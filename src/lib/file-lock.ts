import type { FileHandle } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock, unlock } from 'fs-native-extensions';
import { openOwnFile } from './private-files.ts';

const PATIENCE_MS = 30_000;
/** Between two attempts, at least and at most; drawn anew each time, so that none of several waits forever. */
const PAUSE_MS = [1, 4] as const;

/** Another process keeps the file locked: it is stopped, or its disk hangs. Nothing was reserved or changed. */
export class FileBusyError extends Error {
  constructor(path: string, patienceMs: number) {
    super(`${path} has been locked by another process for ${patienceMs / 1000} s. Let that go on, or end it.`);
    this.name = 'FileBusyError';
  }
}

/**
 * A lock of the system on a file of its own, which is made where it is missing and never removed. It belongs to the
 * open file, not to the process: two within one process exclude each other too. The system takes it back when the
 * process ends, however that comes. It waits by trying, since a thread that waits in the system could not be told to
 * stop.
 */
export class FileLock {
  readonly #file: FileHandle;
  readonly #path: string;

  private constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<FileLock> {
    return new FileLock(path, await openOwnFile(path));
  }

  /** @throws FileBusyError */
  async acquire(patienceMs: number = PATIENCE_MS): Promise<void> {
    const giveUpAt = performance.now() + patienceMs;
    while (!tryLock(this.#file.fd)) {
      if (performance.now() > giveUpAt) throw new FileBusyError(this.#path, patienceMs);
      await pause();
    }
  }

  release(): void {
    unlock(this.#file.fd);
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Works while nobody else does who takes the same lock. Not to be called within such work. @throws FileBusyError */
export async function withFileLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  const lock = await FileLock.open(path);
  try {
    await lock.acquire();
    return await work();
  } finally {
    await lock.close();
  }
}

/** Lets others have the lock who wait for it. */
export const pause = (): Promise<void> => sleep(PAUSE_MS[0] + Math.random() * (PAUSE_MS[1] - PAUSE_MS[0]));
