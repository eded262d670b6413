import { execFileSync } from 'node:child_process';
import { chmod, cp } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { PROJECT } from './project.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** What a fresh clone of the project as it stands would hold, in a folder that is removed after the test. */
export async function copyProject(t: Test): Promise<string> {
  const folder = await temporaryFolder(t);
  // As of a clone: another user, who runs the database for root, may look into it.
  await chmod(folder, 0o755);
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: PROJECT,
  });
  const present = listed.toString().split('\0').filter(Boolean);
  for (const path of present) {
    await cp(join(PROJECT, path), join(folder, path)).catch((error) => {
      // It has been deleted and is still in the index.
      if (error.code !== 'ENOENT') throw error;
    });
  }
  return folder;
}
