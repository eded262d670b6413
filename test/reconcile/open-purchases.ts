import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { type FaultyCheckout, startFaultyCheckout } from '../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';

export const HOUR = 3600;

export async function setUp(t: Test, env: Record<string, string> = {}) {
  const checkout = await startFaultyCheckout(t);
  const gateway = await startGateway(t, settings(checkout, env));
  return { checkout, gateway };
}

export const settings = (checkout: FaultyCheckout, env: Record<string, string> = {}) => ({
  STRIPE_SECRET_KEY: checkout.secretKey,
  STRIPE_API_BASE: checkout.apiBase,
  ...env,
});

/** Opens a purchase as a buyer does; tells its session. */
export async function open(gateway: Gateway, fields: Record<string, string> = {}): Promise<string> {
  const reply = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ amount: '700', ...fields }).toString(),
  });
  assert.equal(reply.status, 303);
  return (reply.headers.get('location') ?? '').split('/').at(-1) ?? '';
}

export const purchase = (gateway: Gateway, session: string) =>
  gateway.db.selectFrom('top_up').selectAll().where('session_id', '=', session).executeTakeFirstOrThrow();

const count = (results: readonly TurnResult[], name: string) =>
  results.find((result) => result.name === name)?.count ?? 0;
export const credited = (results: readonly TurnResult[]) =>
  count(results, 'top_ups') + count(results, 'checkout_sweep');

/** The purchase as if it had been opened that long ago and were due now. */
export const age = (gateway: Gateway, session: string, seconds: number) =>
  sql`update top_up set created_at = now() - make_interval(secs => ${seconds}), next_check_at = now()
      where session_id = ${session}`.execute(gateway.db);
