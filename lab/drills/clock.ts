import { readdirSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const LIBRARIES = '/usr/lib';
const LIBRARY = 'libfaketimeMT.so.1';

/** The clock of one process, which may differ from the machine's. */
export interface Clock {
  /** Settings of the process. */
  readonly env: Readonly<Record<string, string>>;
  /** @param seconds by which it is ahead of the machine's from now on; below zero, behind it */
  step(seconds: number): Promise<void>;
  /** Removes what the library leaves in memory of a process that was killed. */
  forget(pid: number): Promise<void>;
}

/** A clock in a file of this folder; where libfaketime is not installed, why there is none. The monotonic clock stays true. */
export async function openClock(folder: string): Promise<Clock | string> {
  const library = findLibrary();
  if (library === undefined) return "no clock can step here: Debian's package faketime is not installed";
  const file = join(folder, 'clock');
  const step = async (seconds: number) => {
    // Whole or not at all: it is read at any moment.
    await writeFile(`${file}.new`, `${seconds < 0 ? '' : '+'}${seconds}\n`);
    await rename(`${file}.new`, file);
  };
  await step(0);
  return {
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    },
    step,
    forget: async (pid) => {
      for (const name of [`faketime_shm_${pid}`, `sem.faketime_sem_${pid}`]) {
        await rm(join('/dev/shm', name), { force: true });
      }
    },
  };
}

/** Debian has it below the folder of the machine's architecture. */
function findLibrary(): string | undefined {
  const machine = readdirSync(LIBRARIES).find((name) => name.endsWith('-linux-gnu') && has(join(LIBRARIES, name)));
  return machine && join(LIBRARIES, machine, 'faketime', LIBRARY);
}

function has(folder: string): boolean {
  try {
    return readdirSync(join(folder, 'faketime')).includes(LIBRARY);
  } catch {
    return false;
  }
}
