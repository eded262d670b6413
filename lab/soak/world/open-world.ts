import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { migrate } from '../../../src/db/migrate.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { type Owner, programCommand } from '../../../test/support/child.ts';
import { databaseDirectory } from '../../../test/support/database-directory.ts';
import { startTcpProxy, type TcpProxy } from '../../../test/support/tcp-proxy.ts';
import { until } from '../../../test/support/until.ts';
import { openOutside } from './outside.ts';
import { PostgresPart, ProcessPart } from './parts.ts';
import { SERVICE, type ServiceName, type World } from './world.ts';

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

  const ports: string[] = [];
  for (const _ of SERVICE) ports.push(String(await freePort()), String(await freePort()));
  const [one, oneAdmin, two, twoAdmin, , workerAdmin] = ports;
  const listen = {
    'gateway one': { PORT: String(one), ADMIN_PORT: String(oneAdmin) },
    'gateway two': { PORT: String(two), ADMIN_PORT: String(twoAdmin) },
    worker: { ADMIN_PORT: String(workerAdmin) },
  };
  const common = { ...TIMES, BASE_URL: `http://127.0.0.1:${one}`, NODE_ENV: 'test' };
  const databaseLinks = {} as Record<ServiceName, TcpProxy>;
  const service = {} as Record<ServiceName, ProcessPart>;
  for (const name of SERVICE) {
    databaseLinks[name] = await startTcpProxy(owner, postgres.url);
    const env = { ...common, ...outside.settings(false), ...listen[name], DATABASE_URL: databaseLinks[name].url };
    service[name] = new ProcessPart(owner, {
      ...{ command: programCommand('src/main.ts', `--role=${name === 'worker' ? 'worker' : 'web'}`), env },
      ready: ({ printed }) => printed(/listens on|runs jobs/, START_MS),
    });
  }
  const parts = { ...service, ...outside.parts, postgres };
  const isReady = (name: ServiceName) =>
    fetch(`http://127.0.0.1:${listen[name].ADMIN_PORT}/readyz`).then(
      ({ status }) => status === 200,
      () => false,
    );
  const world: World = {
    ...{ ...outside.service, parts, databaseLinks, links: outside.links, databaseUrl: postgres.url },
    gateways: [() => `http://127.0.0.1:${one}`, () => `http://127.0.0.1:${two}`],
    env: { ...common, ...outside.settings(true), DATABASE_URL: postgres.url },
    untilReady: async () => {
      await Promise.all(Object.values(parts).map((part) => part.start()));
      await until(async () => (await Promise.all(SERVICE.map(isReady))).every(Boolean), READY_MS);
    },
  };
  await world.untilReady();
  return world;
}
