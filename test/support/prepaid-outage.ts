import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from './database.ts';
import type { GatewayOptions } from './gateway.ts';
import { balanceHeaders, fundedWallet, HELLO, startPrepaidGateway, TTS } from './prepaid.ts';
import { runTurn } from './reconcile.ts';
import { ControlledStream } from './stub-upstream.ts';
import { startTcpProxy } from './tcp-proxy.ts';
import { until } from './until.ts';

export const FUNDS = 100_000n;
/** After the price of HELLO. */
export const LEFT = FUNDS - 198n;

/**
 * A prepaid request to a gateway whose database can be taken away, with an upstream that answers as the test says.
 * Everything but the gateway reaches the database directly.
 */
export async function startPrepaidOutage(t: Test, options: GatewayOptions = {}) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const gateway = await startPrepaidGateway(t, {}, { ...options, databaseUrl: proxy.url });
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  const { sign, balance } = await fundedWallet({ ...gateway, db }, FUNDS);
  const call = await sign(TTS, HELLO);
  const holds = async () => await db.selectFrom('transfer').select('state').where('kind', '=', 'spend').execute();
  return {
    ...{ url, db, gateway, proxy, drip, call, balance },
    /** Waits until the ledger has the one debit of this request in this state. */
    untilHold: (state: 'pending' | 'posted') => until(async () => (await holds())[0]?.state === state),
    /** The lease of the hold passes, and the reconcilers have their turn. */
    leasePasses: async () => {
      await sql`update transfer set lease_until = now() where state = 'pending'`.execute(db);
      await until(async () => (await runTurn(gateway, 'expired_holds')).outcome === 'done');
    },
    /** With the database back: this is left, the nonce is spent, and the audit finds nothing. */
    assertEnd: async (left: bigint) => {
      assert.equal(await balance(), left);
      const repeated = await gateway.call(TTS, call);
      assert.deepEqual([repeated.status, repeated.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
      assert.deepEqual(balanceHeaders(repeated), ['0', String(left)]);
      assert.deepEqual(await audit(db), []);
    },
  };
}
