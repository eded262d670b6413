import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { serve } from '../../test/support/listening.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

/** What `systemctl` does: `restart speechgate@8081`, `start speechgate-worker`. */
export type Services = Readonly<Record<string, () => Promise<unknown>>>;

/** A `systemctl` that calls these instead of an init system. Tells the folder to put first into PATH. */
export async function serviceManager(t: Test, services: Services): Promise<string> {
  const url = await serve(t, async (request, response) => {
    const asked = decodeURIComponent((request.url ?? '').slice(1)).replace('/', ' ');
    const service = services[asked];
    try {
      if (!service) throw new Error(`there is no service to ${asked}`);
      await service();
      response.end();
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
  const folder = await temporaryFolder(t);
  const program = join(folder, 'systemctl');
  await writeFile(program, `#!/bin/sh\nexec curl -fsS "${url}/$1/$2"\n`);
  await chmod(program, 0o755);
  return folder;
}
