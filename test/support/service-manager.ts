import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

/** What `systemctl` does: `restart speechgate`, `start speechgate-worker`. */
export type Services = Readonly<Record<string, () => Promise<unknown>>>;

/** A `systemctl` that calls these instead of an init system. Tells the folder to put first into PATH. */
export async function serviceManager(t: Test, services: Services): Promise<string> {
  const server = createServer(async (request, response) => {
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
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-systemctl-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const program = join(folder, 'systemctl');
  const { port } = server.address() as AddressInfo;
  await writeFile(program, `#!/bin/sh\nexec curl -fsS "http://127.0.0.1:${port}/$1/$2"\n`);
  await chmod(program, 0o755);
  return folder;
}
