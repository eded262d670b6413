import type { Test } from 'tap';
import { send } from '../../test/support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { Line } from '../soak/callers/line.ts';
import { Operation } from '../soak/callers/operation.ts';
import { buyCredit } from '../soak/callers/top-up.ts';
import { Random } from '../soak/random.ts';
import { startOneGateway } from '../soak/world/one-gateway.ts';
import type { Service } from '../soak/world/world.ts';
import type { Known } from './contract-requests.ts';

const LIMITED = { RATE_LIMIT_MAX: '5', TOP_UP_RATE_LIMIT_MAX: '3', EDGE_RATE_LIMIT_MAX: '20' };
/** Credit in cents: enough for the whole run, and too little for it. */
const [MUCH, LITTLE] = [100_000, 50];

export interface World {
  readonly open: GatewayProcess;
  /** The same with low limits. */
  readonly limited: GatewayProcess;
  readonly service: Service;
  readonly known: Known;
}

export async function openWorld(t: Test): Promise<World> {
  const { gateway: open, service } = await startOneGateway(t, { RECONCILE_INTERVAL_MS: '1000' });
  const limited = await startGatewayProcess(t, { ...service.env, ...LIMITED });
  const [origin] = service.gateways;
  const line = new Line('gateway one', origin);
  t.teardown(() => line.close());
  const buy = (cents: number) => buyCredit(service, new Operation(new Random('accounts', cents), [line, line]), cents);
  const [rich, poor] = [(await buy(MUCH)).keys.payer, (await buy(LITTLE)).keys.payer];
  const gateway: Parameters<typeof later>[0] = { call: (path, request) => send(open.url, path, request) };
  const { jobId } = (await later(gateway, rich)).json;
  const { result } = (await untilJob(gateway, jobId, 'completed')).json;
  const accounts = [rich, rich, poor];
  return {
    ...{ open, limited, service },
    known: {
      ...{ 'x-credit-account': accounts, accountId: accounts, account: accounts, jobId: [jobId] },
      sig: [new URL(result.audioUrl).searchParams.get('sig') ?? ''],
    },
  };
}
