import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Gateway, startGateway } from '../support/gateway.ts';

export const PRICE = 198n;
export const FUNDS = 5_000_000n;

/** Without a worker, so that jobs stay as they were accepted. */
export const start = (t: Test) => startGateway(t);

export const jobs = (gateway: Gateway) => gateway.db.selectFrom('job').selectAll().execute();
export const entries = async (gateway: Gateway) =>
  (
    await sql<{ key: string; payload: object }>`select key, payload from graphile_worker._private_jobs`.execute(
      gateway.db,
    )
  ).rows;
