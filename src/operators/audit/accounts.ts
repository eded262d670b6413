import { type Selection, sql } from 'kysely';
import type { DB } from '../../../db/tables.ts';
import type { Database } from '../../db/database.ts';
import { anyOf } from '../../db/expressions.ts';
import { contra } from '../../ledger/transfer.ts';
import { isUuid } from '../../lib/uuid.ts';

export interface AccountState {
  readonly id: string;
  readonly kind: 'card' | 'wallet';
  readonly address: string | null;
  readonly balanceMicroUsd: bigint;
  readonly heldMicroUsd: bigint;
  readonly debtMicroUsd: bigint;
  readonly frozenAt: Date | null;
  readonly livemode: boolean | null;
  readonly createdAt: Date;
}

/** `session_id` is a secret, because it shows the account (R40). */
const PURCHASE = [
  'state',
  'amount_cents as amountCents',
  'session_id as sessionId',
  'payment_intent_id as paymentIntentId',
] as const;
type PurchaseEntry = Selection<DB, 'top_up', (typeof PURCHASE)[number] | 'id' | 'created_at as at'>;

export interface AccountHistory {
  readonly purchases: readonly PurchaseEntry[];
  readonly clawbacks: readonly object[];
  readonly transfers: readonly object[];
  readonly jobs: readonly object[];
  readonly actions: readonly object[];
}

/** The whole id of a card account is a bearer secret, so operators see its first digits. */
export const SHORT_ID = 8;

/** The whole id of a checkout session is a secret too: it shows the account (R40). */
const SHORT_SESSION = 16;
const ACCOUNT_ID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi;
const SESSION_ID = /\bcs_\w+/g;
const OWN_IDS: readonly string[] = Object.values(contra);

export const shortenAccount = (id: string): string => `${id.slice(0, SHORT_ID)}…`;

export const shortenSession = (id: string): string => `${id.slice(0, SHORT_SESSION)}…`;

export const shortenSecrets = (text: string): string =>
  text
    .replace(ACCOUNT_ID, (id) => (OWN_IDS.includes(id) ? id : shortenAccount(id)))
    .replace(SESSION_ID, shortenSession);

/** A wallet's address, or the start of a card account's id, which is a secret. */
export const nameOf = ({ id, address }: Pick<AccountState, 'id' | 'address'>, showsSecrets = false): string =>
  address ?? (showsSecrets ? id : shortenAccount(id));

/**
 * Ids of the accounts with this id, or address of a wallet. At least 8 digits from the start of a card account's id are
 * enough, so several accounts may match. Undefined if the name is invalid.
 */
export async function accountsNamed(db: Database, name: string): Promise<string[] | undefined> {
  const text = name.trim().toLowerCase().replace(/…$/, '');
  if (/^0x[0-9a-f]{40}$/.test(text)) {
    const rows = await db.selectFrom('account').select('id').where('address', '=', text).execute();
    return rows.map(({ id }) => id);
  }
  const digits = text.replaceAll('-', '');
  if (!isUuid(text) && !/^[0-9a-f]{8,32}$/.test(digits)) return undefined;
  const rows = await db
    .selectFrom('account')
    .select('id')
    .where('kind', '=', 'card')
    .where((eb) => eb.between('id', digits.padEnd(32, '0'), digits.padEnd(32, 'f')))
    .orderBy('id')
    .limit(10)
    .execute();
  return rows.map(({ id }) => id);
}

export interface AccountFilter {
  readonly kind: AccountState['kind'] | undefined;
  readonly minMicroUsd: bigint | undefined;
  readonly maxMicroUsd: bigint | undefined;
  /** Included. */
  readonly createdFrom: Date | undefined;
  /** Excluded. */
  readonly createdTo: Date | undefined;
  readonly isFrozen: boolean;
  readonly isIndebted: boolean;
}

/** Ids of the newest accounts that match. Scans all accounts, because no index serves this. */
export async function listedAccounts(
  db: Database,
  { kind, minMicroUsd, maxMicroUsd, createdFrom, createdTo, isFrozen, isIndebted }: AccountFilter,
  last: number,
): Promise<string[]> {
  const rows = await db
    .selectFrom('account')
    .select('id')
    .where('kind', 'in', kind ? [kind] : ['card', 'wallet'])
    .$if(minMicroUsd !== undefined, (qb) => qb.where('balance_micro_usd', '>=', minMicroUsd as bigint))
    .$if(maxMicroUsd !== undefined, (qb) => qb.where('balance_micro_usd', '<=', maxMicroUsd as bigint))
    .$if(createdFrom !== undefined, (qb) => qb.where('created_at', '>=', createdFrom as Date))
    .$if(createdTo !== undefined, (qb) => qb.where('created_at', '<', createdTo as Date))
    .$if(isFrozen, (qb) => qb.where('frozen_at', 'is not', null))
    .$if(isIndebted, (qb) => qb.where('is_indebted', '=', true))
    .orderBy('created_at', 'desc')
    .limit(last)
    .execute();
  return rows.map(({ id }) => id);
}

export async function readAccounts(db: Database, ids: readonly string[]): Promise<AccountState[]> {
  return db
    .selectFrom('account')
    .leftJoin('account as debt', (join) =>
      join.on('debt.kind', '=', sql.lit('debt')).onRef('debt.owner_id', '=', 'account.id'),
    )
    .select((eb) => [
      'account.id',
      'account.kind',
      'account.address',
      eb.fn.coalesce('account.balance_micro_usd', eb.val(0n)).as('balanceMicroUsd'),
      eb
        .selectFrom('transfer')
        .select(({ cast, fn, lit }) => cast(fn.coalesce(fn.sum('amount_micro_usd'), lit(0)), 'bigint').as('held'))
        .where('state', '=', sql.lit('pending'))
        .whereRef('debit_account_id', '=', 'account.id')
        .as('heldMicroUsd'),
      eb.fn.coalesce('debt.balance_micro_usd', eb.val(0n)).as('debtMicroUsd'),
      'account.frozen_at as frozenAt',
      'account.livemode',
      'account.created_at as createdAt',
    ])
    .where('account.id', '=', anyOf(ids))
    .where('account.kind', 'in', ['card', 'wallet'])
    .orderBy('account.created_at')
    .orderBy('account.id')
    .$narrowType<{ kind: AccountState['kind']; heldMicroUsd: bigint }>()
    .execute();
}

/** Newest first. May scan all transfers, because no index serves this. */
export function selectHistory(db: Database, id: string) {
  const purchases = db.selectFrom('top_up').select(['created_at as at', 'id', ...PURCHASE]);
  const clawbacks = db
    .selectFrom('clawback')
    .select(['created_at as at', 'id', 'kind', 'state', 'status', 'amount_cents as amountCents'])
    .select('top_up_id as purchaseId');
  const transfers = db
    .selectFrom('transfer')
    .select(['created_at as at', 'id', 'kind', 'state'])
    .select((eb) => {
      const [amount, negative] = [eb.ref('amount_micro_usd'), eb.neg('amount_micro_usd')];
      return eb.case('debit_account_id').when(id).then(negative).else(amount).end().as('amountMicroUsd');
    })
    .select(['characters', 'trace_id as traceId'])
    .where((eb) => eb.or([eb('debit_account_id', '=', id), eb('credit_account_id', '=', id)]));
  const jobs = db
    .selectFrom('job')
    .select(['created_at as at', 'id', 'state', 'attempts', 'trace_id as traceId', 'error_code as errorCode']);
  const own = db.selectFrom('top_up').where('account_id', '=', id);
  const actions = db
    .selectFrom('operator_action')
    .select(['at', 'action', 'operator', 'detail', 'reason'])
    .where((eb) =>
      eb.or([eb('subject', '=', id), eb('subject', 'in', own.select(eb.cast<string>('id', 'text').as('id')))]),
    );
  return {
    purchases: purchases.where('account_id', '=', id).orderBy('created_at', 'desc'),
    clawbacks: clawbacks.where('account_id', '=', id).orderBy('created_at', 'desc'),
    transfers: transfers.orderBy('position', 'desc'),
    jobs: jobs.where('account_id', '=', id).orderBy('created_at', 'desc'),
    actions: actions.orderBy('id', 'desc'),
  };
}

/** @param last number of entries of each kind */
export async function readHistory(db: Database, id: string, last: number): Promise<AccountHistory> {
  const { purchases, clawbacks, transfers, jobs, actions } = selectHistory(db, id);
  return {
    purchases: await purchases.limit(last).execute(),
    clawbacks: await clawbacks.limit(last).execute(),
    transfers: await transfers.limit(last).execute(),
    jobs: await jobs.limit(last).execute(),
    actions: await actions.limit(last).execute(),
  };
}

export type FoundPurchase = PurchaseEntry & { readonly accountId: string };

export async function findPurchases(
  db: Database,
  { sessionIds = [], paymentIntentIds = [] }: { sessionIds?: readonly string[]; paymentIntentIds?: readonly string[] },
): Promise<FoundPurchase[]> {
  const purchases = db.selectFrom('top_up').select(['id', 'account_id as accountId', 'created_at as at', ...PURCHASE]);
  return purchases
    .where((eb) =>
      eb.or([eb('session_id', '=', anyOf(sessionIds)), eb('payment_intent_id', '=', anyOf(paymentIntentIds))]),
    )
    .orderBy('created_at')
    .execute();
}

/** May scan whole tables, because no index serves this. */
export async function accountsOfTrace(db: Database, traceId: string): Promise<string[]> {
  const accounts = sql<string>`unnest(array[debit_account_id, credit_account_id])`;
  const transfers = db.selectFrom('transfer').select(accounts.as('id')).where('trace_id', '=', traceId);
  const jobs = db.selectFrom('job').select('account_id as id').where('trace_id', '=', traceId);
  const payers = db
    .selectFrom('x402_payment')
    .innerJoin('account as wallet', 'wallet.address', 'x402_payment.payer')
    .select('wallet.id')
    .where('trace_id', '=', traceId);
  const rows = await db
    .selectFrom('account')
    .select('id')
    .where('kind', 'in', ['card', 'wallet'])
    .where('id', 'in', transfers.union(jobs).union(payers))
    .execute();
  return rows.map(({ id }) => id);
}

export const selectPayments = (db: Database, address: string) =>
  db
    .selectFrom('x402_payment')
    .select(['created_at as at', 'id', 'state', 'purpose', 'network', 'amount_micro_usd as amountMicroUsd'])
    .select(['transaction_hash as transaction', 'trace_id as traceId'])
    .where('payer', '=', address)
    .orderBy('created_at');

export const selectFeedback = (db: Database, address: string) =>
  db
    .selectFrom('feedback')
    .select(['received_at as at', 'id', 'category', 'message', 'details', 'trace_id as traceId'])
    .where('wallet', '=', address)
    .orderBy('received_at');
