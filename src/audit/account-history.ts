import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** An account as operators see it. All amounts are in micro-USD, or in cents where they say so. */
export interface AccountState {
  readonly id: string;
  readonly kind: 'card' | 'wallet';
  /** Of a wallet. */
  readonly address: string | null;
  readonly balanceMicroUsd: bigint;
  /** Held for requests and jobs that have not ended: it has left the balance already. */
  readonly heldMicroUsd: bigint;
  readonly debtMicroUsd: bigint;
  readonly frozenAt: Date | null;
  /** Of the processor's live mode, its test mode, or not known. */
  readonly livemode: boolean | null;
  readonly createdAt: Date;
}

export interface PurchaseEntry {
  readonly id: string;
  readonly at: Date;
  readonly state: string;
  readonly amountCents: number;
  /** A secret: it shows the account to whoever holds it (R40). */
  readonly sessionId: string | null;
  readonly paymentIntentId: string | null;
}

/** A refund or a dispute. */
export interface ClawbackEntry {
  readonly id: string;
  readonly at: Date;
  readonly kind: string;
  readonly state: string;
  readonly status: string;
  readonly amountCents: number;
  readonly purchaseId: string;
}

/** What has moved, or is held. */
export interface TransferEntry {
  readonly id: bigint;
  readonly at: Date;
  readonly kind: string;
  readonly state: string;
  /** Below 0 when it leaves the account. */
  readonly amountMicroUsd: bigint;
  readonly characters: number | null;
  readonly traceId: string | null;
}

export interface JobEntry {
  readonly id: string;
  readonly at: Date;
  readonly state: string;
  readonly attempts: number;
  readonly traceId: string;
  readonly errorCode: string | null;
}

export interface ActionEntry {
  readonly at: Date;
  readonly operator: string;
  readonly action: string;
  readonly reason: string;
  readonly detail: unknown;
}

/** The last entries of each kind, newest first. */
export interface AccountHistory {
  readonly purchases: readonly PurchaseEntry[];
  readonly clawbacks: readonly ClawbackEntry[];
  readonly transfers: readonly TransferEntry[];
  readonly jobs: readonly JobEntry[];
  readonly actions: readonly ActionEntry[];
}

/** The accounts of these ids, in the order in which they came into being. */
export async function readAccounts(db: Database, ids: readonly string[]): Promise<AccountState[]> {
  const { rows } = await sql<AccountState>`
    select account.id, account.kind, account.address, account.balance_micro_usd as "balanceMicroUsd",
           coalesce((select sum(amount_micro_usd) from transfer
                     where state = 'pending' and debit_account_id = account.id), 0)::bigint as "heldMicroUsd",
           coalesce(debt.balance_micro_usd, 0) as "debtMicroUsd", account.frozen_at as "frozenAt", account.livemode,
           account.created_at as "createdAt"
    from account left join account debt on debt.kind = 'debt' and debt.owner_id = account.id
    where account.id = any(${ids}::uuid[]) and account.kind in ('card', 'wallet')
    order by account.created_at, account.id`.execute(db);
  return rows;
}

/**
 * The last entries of an account. Reads the transfers and jobs from the newest on until there are enough, all of them
 * where there are not: no index is kept for it.
 * @param last how many of each kind
 */
export async function readHistory(db: Database, id: string, last: number): Promise<AccountHistory> {
  const rowsOf = async <T>(query: RawBuilder<T>): Promise<T[]> => (await query.execute(db)).rows;
  const purchases = await rowsOf(sql<PurchaseEntry>`
    select id, created_at as at, state, amount_cents as "amountCents", session_id as "sessionId",
           payment_intent_id as "paymentIntentId"
    from top_up where account_id = ${id}::uuid order by created_at desc limit ${last}`);
  const clawbacks = await rowsOf(sql<ClawbackEntry>`
    select id, created_at as at, kind, state, status, amount_cents as "amountCents", top_up_id as "purchaseId"
    from clawback where account_id = ${id}::uuid order by created_at desc limit ${last}`);
  const transfers = await rowsOf(sql<TransferEntry>`
    select id, created_at as at, kind, state, characters, trace_id as "traceId",
           case when debit_account_id = ${id}::uuid then -amount_micro_usd else amount_micro_usd end as "amountMicroUsd"
    from transfer where ${id}::uuid in (debit_account_id, credit_account_id) order by id desc limit ${last}`);
  const jobs = await rowsOf(sql<JobEntry>`
    select id, created_at as at, state, attempts, trace_id as "traceId", error_code as "errorCode"
    from job where account_id = ${id}::uuid order by created_at desc limit ${last}`);
  const actions = await rowsOf(sql<ActionEntry>`
    select at, operator, action, reason, detail from operator_action
    where subject = ${id} or subject in (select id::text from top_up where account_id = ${id}::uuid)
    order by operator_action.id desc limit ${last}`);
  return { purchases, clawbacks, transfers, jobs, actions };
}
