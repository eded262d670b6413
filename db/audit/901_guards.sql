-- all triggers and constraints that protect the ledger are in place
with books as (
  -- Whatever precedes it in the search path.
  select relnamespace as schema from pg_class where oid = 'transfer'::regclass
), body (name, hash) as (
  -- SHA-256 of the functions' bodies. A migration that changes a body must change its hash here.
  values ('refuse_change', '42bef783d6f31e6398375b65945851f6f84c6c0c486b294a169828f0a0ea5999'),
         ('transfer_begins', 'b131c1be8e600252b26bf8880eea9798f9e386f79f1c48883d51c8b2cee0a0a0'),
         ('operator_action_begins', 'e0b9719424fd8394a3095ab3aeecc3bb8c250746f973f534f204bbc19233db8b'),
         ('paused_flow_recorded', '117e71f5e72c19857cd61028f7174fc3a037d2e9412b529ce2a9665a9245ee84')
), guarded (relation, triggers) as (
  values ('transfer', array['begins', 'lease', 'terms', 'ended', 'kept', 'kept_all']),
         ('account', array['terms', 'mode', 'kept', 'kept_all']),
         ('top_up', array['terms', 'credited', 'check', 'kept', 'kept_all']),
         ('clawback', array['terms', 'check', 'kept', 'kept_all']),
         ('processor_list', array['read']),
         ('x402_payment', array['terms', 'settled', 'sent', 'lease', 'kept', 'kept_all']),
         ('prepaid_nonce', array['terms', 'kept', 'kept_all']),
         ('job', array['terms', 'due', 'kept']),
         ('operator_action', array['begins', 'terms', 'kept', 'kept_all']),
         ('paused_flow', array['recorded', 'terms', 'kept_all'])
)
select 'trigger' as what, relation || '_' || suffix as name from guarded cross join unnest(triggers) suffix
where not exists (
  select from pg_trigger join pg_proc on pg_proc.oid = tgfoid join pg_class on pg_class.oid = tgrelid
  where relname = relation and tgname = relation || '_' || suffix and tgenabled in ('O', 'A')
    and relnamespace = (select schema from books)
    and proname = coalesce((select name from body where name = tgname), 'refuse_change')
    and encode(sha256(convert_to(prosrc, 'UTF8')), 'hex') = (select hash from body where name = proname))
union all
-- Without these, an entry could be made twice or with any amount.
select 'constraint', name from unnest(array[
  'account_balance_micro_usd_check', 'transfer_amount_micro_usd_check', 'top_up_session_id_key',
  'x402_payment_amount_micro_usd_check', 'x402_payment_transaction_hash', 'x402_payment_lower_case',
  'x402_payment_network_asset_payer_nonce_key', 'prepaid_nonce_pkey', 'clawback_pkey']) name
where not exists (
  select from pg_constraint where conname = name and connamespace = (select schema from books))
union all
select 'unique index', name from unnest(array[
  'transfer_top_up', 'transfer_settlement', 'transfer_deposit', 'account_debt']) name
where not exists (
  select from pg_index join pg_class on pg_class.oid = indexrelid
  where relname = name and indisunique and indisvalid and relnamespace = (select schema from books));
