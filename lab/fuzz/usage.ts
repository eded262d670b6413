import { readdirSync, readlinkSync } from 'node:fs';
import { memoryOf } from '../bench/processes.ts';

export interface Usage {
  readonly residentBytes: number;
  /** Open descriptors, except directories of the audio store. */
  readonly descriptors: number;
}

/** The audio store keeps each of its 256 directories open after first use. */
const DIRECTORY_OF_STORE = /\/audio\/[0-9a-f]{2}$/;

export const usageOf = (pid: number): Usage => ({ residentBytes: memoryOf([pid]), descriptors: descriptorsOf(pid) });

function descriptorsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  const links = readdirSync(folder).map((descriptor) => {
    try {
      return readlinkSync(`${folder}/${descriptor}`);
    } catch {
      return undefined;
    }
  });
  return links.filter((link) => link !== undefined && !DIRECTORY_OF_STORE.test(link)).length;
}
