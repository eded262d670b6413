import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { migrate } from '../../../src/db/migrate.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { type Owner, programCommand } from '../../../test/support/child.ts';
import { databaseDirectory } from '../../../test/support/database-directory.ts';
import { startTcpProxy } from '../../../test/support/tcp-proxy.ts';
import { until } from '../../../test/support/until.ts';
import { openOutside } from './outside.ts';
import { PostgresPart } from './postgres-part.ts';
import { ProcessPart } from './process-part.ts';
import type { GatewayName, Parts, ServiceName, World } from './world.ts';

const START_MS = 120_000;
const READY_MS = 120_000;
/** Short, so that more happens. */
const TIMES = { SPEECH_TIMEOUT_MS: '1000', RECONCILE_INTERVAL_MS: '1000' };

/** Starts the service and everything it needs. All of it ends with the owner. */
export async function openWorld(owner: Owner): Promise<World> {
  const folder = await mkdtemp(join(await databaseDirectory(), 'speechgate-soak-'));
  owner.teardown(() => rm(folder, { recursive: true, force: true }));
  // The database's account needs access.
  await chmod(folder, 0o711);
  const [postgres, outside] = await Promise.all([
    PostgresPart.open(owner, join(folder, 'database')),
    openOutside(owner, folder),
  ]);
  await migrate(postgres.url);
  const databaseLinks = {
    'gateway one': await startTcpProxy(owner, postgres.url),
    'gateway two': await startTcpProxy(owner, postgres.url),
    worker: await startTcpProxy(owner, postgres.url),
  };

  const ports = { 'gateway one': await freePort(), 'gateway two': await freePort() };
  const adminPorts = { ...ports, worker: 0 };
  for (const name of Object.keys(adminPorts) as ServiceName[]) adminPorts[name] = await freePort();
  const originOf = (name: GatewayName) => () => `http://127.0.0.1:${ports[name]}`;
  const common = { ...TIMES, BASE_URL: originOf('gateway one')(), NODE_ENV: 'test' };
  const serve = (name: ServiceName): ProcessPart => {
    const role = name === 'worker' ? 'worker' : 'web';
    const port = name === 'worker' ? {} : { PORT: String(ports[name]) };
    const database = { DATABASE_URL: databaseLinks[name].url, ADMIN_PORT: String(adminPorts[name]) };
    return new ProcessPart({
      ...{ name, owner, command: programCommand('src/main.ts', `--role=${role}`) },
      env: { ...common, ...outside.settings(false), ...port, ...database },
      ready: ({ printed }) => printed(/listens on|runs jobs/, START_MS),
    });
  };
  const service = {
    'gateway one': serve('gateway one'),
    'gateway two': serve('gateway two'),
    worker: serve('worker'),
  };
  const parts: Parts = { ...service, ...outside.parts, postgres };
  const isReady = (name: ServiceName) =>
    fetch(`http://127.0.0.1:${adminPorts[name]}/readyz`).then(
      ({ status }) => status === 200,
      () => false,
    );
  const world: World = {
    ...{ ...outside.service, parts, databaseLinks, links: outside.links, databaseUrl: postgres.url },
    gateways: [originOf('gateway one'), originOf('gateway two')],
    env: { ...common, ...outside.settings(true), DATABASE_URL: postgres.url },
    untilReady: async () => {
      await Promise.all(Object.values(parts).map((part) => part.start()));
      const names = Object.keys(service) as ServiceName[];
      await until(async () => (await Promise.all(names.map(isReady))).every(Boolean), READY_MS);
    },
  };
  await world.untilReady();
  return world;
}
