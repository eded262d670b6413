import { type RawBuilder, sql } from 'kysely';
import { contra } from '../transfer.ts';
import type { Invariant } from './invariant.ts';

const TRIGGERS: Readonly<Record<string, readonly string[]>> = {
  transfer: ['begins', 'lease', 'terms', 'ended', 'kept', 'kept_all'],
  account: ['terms', 'mode', 'kept', 'kept_all'],
  top_up: ['terms', 'credited', 'check', 'kept', 'kept_all'],
  clawback: ['terms', 'check', 'kept', 'kept_all'],
  processor_list: ['read'],
  x402_payment: ['terms', 'settled', 'sent', 'lease', 'kept', 'kept_all'],
  prepaid_nonce: ['terms', 'kept', 'kept_all'],
  job: ['terms', 'due', 'kept'],
  operator_action: ['begins', 'terms', 'kept', 'kept_all'],
  paused_flow: ['recorded', 'terms', 'kept_all'],
};

/** Without these, an entry could be made twice or with any amount. */
const CONSTRAINTS = [
  'account_balance_micro_usd_check',
  'transfer_amount_micro_usd_check',
  'top_up_session_id_key',
  'x402_payment_amount_micro_usd_check',
  'x402_payment_transaction_hash',
  'x402_payment_lower_case',
  'x402_payment_network_asset_payer_nonce_key',
  'prepaid_nonce_pkey',
  'clawback_pkey',
];
const INDEXES = ['transfer_top_up', 'transfer_settlement', 'transfer_deposit', 'account_debt'];

/** SHA-256 of the functions' bodies. A migration that changes a body must change its hash here. */
const FUNCTIONS = {
  refuse_change: '42bef783d6f31e6398375b65945851f6f84c6c0c486b294a169828f0a0ea5999',
  transfer_begins: 'b131c1be8e600252b26bf8880eea9798f9e386f79f1c48883d51c8b2cee0a0a0',
  operator_action_begins: 'e0b9719424fd8394a3095ab3aeecc3bb8c250746f973f534f204bbc19233db8b',
  paused_flow_recorded: '117e71f5e72c19857cd61028f7174fc3a037d2e9412b529ce2a9665a9245ee84',
};

const list = (values: readonly unknown[]): RawBuilder<unknown> => sql`array[${sql.join(values)}]::text[]`;

const BODIES = sql`${sql.lit(JSON.stringify(FUNCTIONS))}::jsonb`;

/** The schema of the books, whatever precedes it in the search path. */
const BOOKS = sql`(select relnamespace from pg_class where oid = 'transfer'::regclass)`;

const triggers = Object.entries(TRIGGERS).flatMap(([table, names]) => names.map((name) => `${table}_${name}`));
const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const contraAccounts = Object.entries(contra).map(([name, id]) => `${id} ${snakeCase(name)}`);

const GUARDS_RULE = 'the triggers and constraints that guard the books are in place';

export const guardInvariants: readonly Invariant[] = [
  {
    rule: GUARDS_RULE,
    breaches: sql`
      select 'trigger' as what, name from unnest(${list(triggers)}) name
      where not exists (
        select from pg_trigger join pg_proc on pg_proc.oid = tgfoid join pg_class on pg_class.oid = tgrelid
        where tgname = name and starts_with(name, relname || '_') and tgenabled in ('O', 'A')
          and relnamespace = ${BOOKS} and proname = case when jsonb_exists(${BODIES}, name) then name else 'refuse_change' end
          and encode(sha256(convert_to(prosrc, 'UTF8')), 'hex') = ${BODIES} ->> proname)
      union all
      select 'constraint', name from unnest(${list(CONSTRAINTS)}) name
      where not exists (
        select from pg_constraint where conname = name and connamespace = ${BOOKS})
      union all
      select 'unique index', name from unnest(${list(INDEXES)}) name
      where not exists (
        select from pg_index join pg_class on pg_class.oid = indexrelid
        where relname = name and indisunique and indisvalid and relnamespace = ${BOOKS})`,
  },
  {
    rule: 'contra accounts are those that the service defines',
    breaches: sql`
      select coalesce(found.name, expected.name) as account, found.name is not null as found
      from (select id || ' ' || contra_name as name from account where kind = 'contra') found
      full join unnest(${list(contraAccounts)}) expected (name) on expected.name = found.name
      where found.name is null or expected.name is null`,
  },
];
