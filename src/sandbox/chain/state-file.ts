import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { createOwnFile, readUnsharedFile, syncFolder } from '../../lib/private-files.ts';
import { hasCode } from '../postgres/system-error.ts';

/**
 * The chain's state on disk. anvil can write it by itself, but does so in place, so that a kill leaves half a file, and
 * at intervals, so that the last transactions are lost. Here a file is replaced by a whole one or not at all, when the
 * caller says so, and the one before it is kept.
 */
export interface StateFile {
  /** The newest whole file that anvil can load; undefined when there is none. A damaged one is put aside. */
  find(): Promise<string | undefined>;
  /** Writes what `anvil_dumpState` answers: gzipped JSON in hexadecimal digits. Returns when it is on the disk. */
  write(dump: string): Promise<void>;
}

export function stateFile(directory: string, onProgress: (message: string) => void): StateFile {
  const current = join(directory, 'state.json');
  const previous = join(directory, 'state.previous.json');
  const damaged = join(directory, 'state.damaged.json');
  const fresh = join(directory, 'state.new.json');
  return {
    async find() {
      const condition = await inspect(current);
      if (condition === 'whole') return current;
      if (condition === 'damaged') {
        await rename(current, damaged);
        onProgress(`The local chain's state was damaged and is now ${damaged}`);
      }
      if ((await inspect(previous)) === 'whole') return previous;
      if (condition === 'damaged') onProgress('The local chain starts anew: there is no earlier state');
      return undefined;
    },
    async write(dump) {
      const json = await promisify(gunzip)(Buffer.from(dump.slice(2), 'hex'));
      await rm(fresh, { force: true });
      await createOwnFile(fresh, json);
      await replace(current, previous);
      await rename(fresh, current);
      await syncFolder(directory);
    },
  };
}

/** Whether the file holds a complete state; a write that was cut off leaves JSON that doesn't end. */
async function inspect(path: string): Promise<'whole' | 'damaged' | 'absent'> {
  try {
    const text = await readUnsharedFile(path);
    if (text === undefined) return 'absent';
    const state: unknown = JSON.parse(text);
    const complete = typeof state === 'object' && state !== null && 'accounts' in state && 'blocks' in state;
    return complete ? 'whole' : 'damaged';
  } catch (error) {
    if (error instanceof SyntaxError) return 'damaged';
    throw error;
  }
}

async function replace(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}
