import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Chain } from '../x402/chain.ts';
import type { Asset } from '../x402/network.ts';
import type { Payee } from '../x402/payees.ts';
import type { ReceivedTransfer } from '../x402/transfer-proof.ts';
import { everyPayee } from '../x402/unrecorded-transfers.ts';
import type { Comparison, Difference } from './difference.ts';
import type { Period } from './period.ts';

/** A payment is booked within so long after its block; what is dated before the period may be booked in it. */
const BOOKED_WITHIN_MS = 3_600_000;

interface Settled {
  readonly transaction: string;
  readonly microUsd: bigint;
  readonly at: Date;
}

/**
 * Compares what the payees received on the chain in the period with the payments that the ledger settled in it. The one
 * goes by the time of the block, the other by that of the booking.
 * @throws RpcError
 */
export async function compareChain(
  db: Database,
  chain: Chain,
  { asset, payees }: { readonly asset: Asset; readonly payees: readonly Payee[] },
  period: Period,
): Promise<Comparison> {
  const { from, to } = period;
  const since = new Date(from.getTime() - BOOKED_WITHIN_MS);
  const received = await chain.received(await everyPayee(db, payees), since);
  const times = new Map(received.map((transfer) => [keyOf(transfer), transfer.at]));
  const inPeriod = received.filter(({ at }) => at >= from && at < to);
  const settled = await settledSince(db, asset, since);
  const differences: Difference[] = [];
  for (const transfer of inPeriod) {
    const { transaction, amount, nonce } = transfer;
    const payment = settled.get(keyOf(transfer));
    if (payment && payment.at >= from && payment.at < to) continue;
    const because = payment
      ? `the ledger booked it ${payment.at.toISOString()}`
      : nonce === undefined
        ? 'it was sent without an authorization, so it pays for nothing here'
        : null;
    differences.push({ what: 'transfer', id: transaction, microUsd: amount, because });
  }
  let ledger = 0n;
  for (const [key, { transaction, microUsd, at }] of settled) {
    if (at < from || at >= to) continue;
    ledger += microUsd;
    const time = times.get(key);
    if (time && time >= from && time < to) continue;
    const because = time ? `its block is of ${time.toISOString()}` : null;
    differences.push({ what: 'payment', id: transaction, microUsd: -microUsd, because });
  }
  return { outside: inPeriod.reduce((sum, { amount }) => sum + amount, 0n), ledger, differences, apart: {} };
}

/** By its authorization: a reorganisation may move it to another place of its block. */
const keyOf = ({ transaction, payer, nonce }: ReceivedTransfer): string => `${transaction}:${payer}:${nonce}`;

async function settledSince(db: Database, { network, address }: Asset, since: Date): Promise<Map<string, Settled>> {
  const { rows } = await sql<Settled & { key: string }>`
    select concat_ws(':', transaction_hash, payer, nonce) as key, transaction_hash as transaction, settled_at as at,
           amount_micro_usd as "microUsd"
    from x402_payment
    where state = 'settled' and network = ${network} and asset = ${address.toLowerCase()} and settled_at >= ${since}`.execute(
    db,
  );
  return new Map(rows.map(({ key, ...row }) => [key, row]));
}
