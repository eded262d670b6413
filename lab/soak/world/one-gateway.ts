import type { Test } from 'tap';
import { testDatabase } from '../../../test/support/database.ts';
import { type GatewayProcess, startGatewayProcess } from '../../../test/support/gateway-process.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { openOutside } from './outside.ts';
import type { Service } from './world.ts';

/** A service of one process, which also works. @param databaseUrl default: one of the test's own */
export async function startOneGateway(
  t: Test,
  env: Readonly<Record<string, string>>,
  databaseUrl?: string,
): Promise<{ readonly gateway: GatewayProcess; readonly service: Service }> {
  const outside = await openOutside(t, await temporaryFolder(t));
  const DATABASE_URL = databaseUrl ?? (await testDatabase(t)).url;
  const settings = { ...outside.settings(true), BASE_URL: 'http://speechgate.test', ...env, DATABASE_URL };
  const gateway = await startGatewayProcess(t, settings);
  const origin = () => gateway.url;
  const service = { ...outside.service, gateways: [origin, origin] as const, databaseUrl: DATABASE_URL, env: settings };
  return { gateway, service };
}
