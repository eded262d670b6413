import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { chargeInvariants } from './audit/charges.ts';
import { guardInvariants } from './audit/guards.ts';
import type { Invariant } from './audit/invariant.ts';
import { purchaseInvariants } from './audit/purchases.ts';
import { timeInvariants } from './audit/times.ts';
import { contra } from './contra.ts';
import { NONCE_RETENTION_HOURS } from './wallets.ts';

/** A dead process's hold is voided by the reconciler some time after its lease has passed; later than this is a breach. */
const RECONCILER_GRACE_SECONDS = 120;

/** What holds in the ledger at any moment. All amounts are in micro-USD. */
export const invariants: readonly Invariant[] = [
  {
    rule: "the card accounts' balances are the posted top-ups less the pending and posted charges that are not reversed",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'card') as balances,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'top_up' and state = 'posted')
                 as top_ups,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'charge' and state <> 'voided')
                 as charges,
               (select coalesce(sum(amount_micro_usd), 0) from transfer
                where kind = 'reversal' and debit_account_id = ${contra.cardRevenue}) as reversals
      )
      select * from totals where balances <> top_ups - charges + reversals`,
  },
  {
    rule: "an account's balance is the sum of its own transfers",
    breaches: sql`
      with movement as (
        select credit_account_id as account_id, amount_micro_usd as amount from transfer where state = 'posted'
        union all
        select debit_account_id, -amount_micro_usd from transfer where state <> 'voided'
      ), expected as (
        select account_id, sum(amount) as amount from movement group by account_id
      )
      select account.id, account.balance_micro_usd as balance, coalesce(expected.amount, 0) as transfers
      from account left join expected on expected.account_id = account.id
      where account.kind <> 'contra' and account.balance_micro_usd <> coalesce(expected.amount, 0)`,
  },
  {
    rule: 'no balance is negative',
    breaches: sql`select id, balance_micro_usd as balance from account where balance_micro_usd < 0`,
  },
  {
    rule: 'both accounts of a transfer exist',
    breaches: sql`
      select id, debit_account_id, credit_account_id from transfer
      where not exists (select from account where account.id = transfer.debit_account_id)
         or not exists (select from account where account.id = transfer.credit_account_id)`,
  },
  {
    rule: 'a transfer runs between the accounts that its kind names',
    breaches: sql`
      select transfer.id, transfer.kind, debit.kind as debit, credit.kind as credit from transfer
      join account debit on debit.id = transfer.debit_account_id
      join account credit on credit.id = transfer.credit_account_id
      where (transfer.kind, coalesce(debit.contra_name, debit.kind), coalesce(credit.contra_name, credit.kind)) not in (
        values ('top_up', 'card_clearing', 'card'), ('charge', 'card', 'card_revenue'),
               ('settlement', 'usdc_clearing', 'usdc_revenue'),
               ('deposit', 'usdc_clearing', 'wallet'), ('spend', 'wallet', 'prepaid_revenue'),
               ('reversal', 'card_revenue', 'card'), ('reversal', 'prepaid_revenue', 'wallet'))`,
  },
  {
    rule: 'a checkout session is credited at most once, and only as a credited top-up of that amount',
    breaches: sql`
      select coalesce(transfer.reference, top_up.session_id) as session, count(transfer.id) as credits,
             sum(transfer.amount_micro_usd) as credited, max(top_up.amount_cents) as cents
      from transfer full join top_up on top_up.session_id = transfer.reference
      where transfer.kind = 'top_up' or top_up.state = 'credited'
      group by 1
      having count(transfer.id) <> 1 or bool_or(top_up.state is distinct from 'credited')
          or sum(transfer.amount_micro_usd) is distinct from max(top_up.amount_cents) * 10000::numeric`,
  },
  {
    rule: 'a hold has ended, is within its lease, or is owned by a live job',
    breaches: sql`
      select id, amount_micro_usd as amount, created_at, lease_until from transfer
      where state = 'pending'
        and (lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})
             or lease_until is null and not exists (
               select from job where job.hold_id = transfer.id and job.state in ('queued', 'processing')))`,
  },
  {
    rule: "a job's hold is pending while it lives, posted when it is completed, voided when it failed, and has its fence",
    breaches: sql`
      select job.id, job.state, transfer.state as hold, job.fence, transfer.fence as hold_fence
      from job left join transfer on transfer.id = job.hold_id
      where job.fence is distinct from transfer.fence or transfer.lease_until is not null
         or transfer.debit_account_id is distinct from job.account_id
         or transfer.state is distinct from
            case job.state when 'completed' then 'posted' when 'failed' then 'voided' else 'pending' end`,
  },
  {
    rule: 'a job that has ended has no text (R18), and one that lives has',
    breaches: sql`
      select id, state from job where (state in ('completed', 'failed')) = (text is not null)`,
  },
  {
    rule: 'a settled payment has exactly one settlement of its amount, and no other payment has one',
    breaches: sql`
      select coalesce(transfer.reference, payment.id::text) as payment, max(payment.state) as state,
             count(transfer.id) as settlements, sum(transfer.amount_micro_usd) as settled,
             max(payment.amount_micro_usd) as amount
      from (select * from transfer where kind in ('settlement', 'deposit')) transfer
      full join x402_payment payment on payment.id::text = transfer.reference
      where transfer.id is not null or payment.state = 'settled'
      group by 1
      having count(transfer.id) <> 1 or max(payment.state) is distinct from 'settled'
          or bool_or(transfer.state <> 'posted')
          or bool_or((payment.purpose = 'deposit') <> (transfer.kind = 'deposit'))
          or sum(transfer.amount_micro_usd) is distinct from max(payment.amount_micro_usd)`,
  },
  {
    rule: "the wallets' balances are their deposits less the pending and posted spends that are not reversed",
    breaches: sql`
      with totals as (
        select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'wallet') as balances,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'deposit' and state = 'posted')
                 as deposits,
               (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'spend' and state <> 'voided')
                 as spends,
               (select coalesce(sum(amount_micro_usd), 0) from transfer
                where kind = 'reversal' and debit_account_id = ${contra.prepaidRevenue}) as reversals
      )
      select * from totals where balances <> deposits - spends + reversals`,
  },
  {
    rule: 'a reversal gives back one posted charge or spend of a request, whole, once, and with its reason',
    breaches: sql`
      select coalesce(transfer.reference, reversal.transfer_id::text) as reversed, count(transfer.id) as reversals,
             sum(transfer.amount_micro_usd) as given_back, max(charge.amount_micro_usd) as charged
      from (select * from transfer where kind = 'reversal') transfer
      full join reversal on reversal.transfer_id::text = transfer.reference
      left join transfer charge on charge.id = reversal.transfer_id
      group by 1
      having count(transfer.id) <> 1 or count(charge.id) <> 1
          or bool_or(transfer.state <> 'posted' or charge.state <> 'posted' or charge.kind not in ('charge', 'spend')
                     or (transfer.debit_account_id, transfer.credit_account_id, transfer.amount_micro_usd)
                        is distinct from (charge.credit_account_id, charge.debit_account_id, charge.amount_micro_usd)
                     or exists (select from job where job.hold_id = charge.id))`,
  },
  {
    rule: 'a deposit is credited to the account of its payer',
    breaches: sql`
      select transfer.id, payment.payer, account.address from transfer
      join x402_payment payment on payment.id::text = transfer.reference
      left join account on account.id = transfer.credit_account_id
      where transfer.kind = 'deposit' and account.address is distinct from payment.payer`,
  },
  {
    rule: 'a nonce is spent if and only if a wallet was debited for it',
    breaches: sql`
      select coalesce(spend.debit_account_id, nonce.account_id) as account, nonce.spent_at, spend.id as spend
      from (select * from transfer where kind = 'spend') spend
      full join prepaid_nonce nonce
        on nonce.account_id = spend.debit_account_id and nonce.nonce = spend.reference
          and nonce.spent_at = spend.created_at
      where spend.id is null
         or nonce.nonce is null and spend.created_at > now() - make_interval(hours => ${NONCE_RETENTION_HOURS}::int)`,
  },
  {
    rule: 'a transfer on the chain pays for one payment at most',
    breaches: sql`
      select network, transaction_hash, log_index, count(*) as payments from x402_payment
      where transaction_hash is not null
      group by network, transaction_hash, log_index having count(*) > 1`,
  },
  {
    rule: 'payments are of the network and asset that the database belongs to',
    breaches: sql`
      select payment.id, payment.network, payment.asset, instance.network as own_network, instance.asset as own_asset
      from x402_payment payment, instance
      where (payment.network, payment.asset) is distinct from (instance.network, instance.asset)`,
  },
  {
    rule: 'a payment under way is within its lease',
    breaches: sql`
      select id, state, amount_micro_usd as amount, created_at, lease_until from x402_payment
      where state in ('reserved', 'settling')
        and lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})`,
  },
  ...purchaseInvariants,
  ...chargeInvariants,
  ...timeInvariants,
  ...guardInvariants,
];

export interface AuditFinding {
  readonly rule: string;
  readonly breaches: readonly Record<string, unknown>[];
}

/** Checks every invariant on one snapshot of the database; each finding holds the rows that break its rule. */
export async function audit(db: Database): Promise<AuditFinding[]> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (snapshot) => {
      const findings: AuditFinding[] = [];
      for (const { rule, breaches } of invariants) {
        const { rows } = await breaches.execute(snapshot);
        if (rows.length > 0) findings.push({ rule, breaches: rows });
      }
      return findings;
    });
}
