import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { PurchaseEntry } from './account-history.ts';

/** A purchase that led to an account. */
export interface FoundPurchase extends PurchaseEntry {
  readonly accountId: string;
}

/** The purchases of these checkout sessions and payments of the processor; those of earlier releases name no payment. */
export async function findPurchases(
  db: Database,
  { sessionIds = [], paymentIntentIds = [] }: { sessionIds?: readonly string[]; paymentIntentIds?: readonly string[] },
): Promise<FoundPurchase[]> {
  const { rows } = await sql<FoundPurchase>`
    select id, account_id as "accountId", created_at as at, state, amount_cents as "amountCents",
           session_id as "sessionId", payment_intent_id as "paymentIntentId"
    from top_up where session_id = any(${sessionIds}::text[]) or payment_intent_id = any(${paymentIntentIds}::text[])
    order by created_at`.execute(db);
  return rows;
}

/** The accounts that a request has charged or paid to, by its trace id. Reads whole tables, since no index is kept for it. */
export async function accountsOfTrace(db: Database, traceId: string): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select distinct account.id from account join (
      select unnest(array[debit_account_id, credit_account_id]) as id from transfer where trace_id = ${traceId}::uuid
      union select account_id from job where trace_id = ${traceId}::uuid
      union select wallet.id from x402_payment join account wallet on wallet.address = x402_payment.payer
            where trace_id = ${traceId}::uuid
    ) named on named.id = account.id
    where account.kind in ('card', 'wallet')`.execute(db);
  return rows.map(({ id }) => id);
}
