import pg from 'pg';
import { compileService } from '../test/compile.ts';

/** A fault that is put into a copy of the service, to see whether a soak finds it. */
interface Sabotage {
  /** What the service does wrong. */
  readonly words: string;
  /** What is written instead in files of src; each text has to be there once. */
  readonly changes: readonly { readonly path: string; readonly from: string; readonly to: string }[];
  /** Takes away what the database itself would refuse. */
  readonly sql?: string;
}

const change = (path: string, from: string, to: string) => ({ path, from, to });

/** Words stand before what is changed, so that what each one breaks can be read. */
export const SABOTAGES = {
  fence: {
    words:
      'a process that was taken for dead captures and delivers what others give back, and nobody asks for the fence',
    changes: [
      change(
        'ledger/hold.ts',
        'transfer.id = held.id and transfer.fence = held.fence and',
        'transfer.id = held.id and',
      ),
      change(
        'ledger/hold.ts',
        'and (process_id is null or exists (select from gateway_process where id = process_id and not is_dead))',
        '',
      ),
      change(
        'ledger/hold.ts',
        `where id = \${id} and fence = \${fence} and state = 'posted'`,
        `where id = \${id} and state = 'posted'`,
      ),
      change(
        'payments/unfinished-holds.ts',
        'if (!hold?.answer || hold.registration !== this.#registration || !this.#isSurelyAlive()) return false;',
        'if (!hold?.answer) return false;',
      ),
      change(
        'payments/unfinished-holds.ts',
        'if (hold.registration === this.#registration && this.#isSurelyAlive()) return true;',
        'if (hold.registration) return true;',
      ),
    ],
  },
  nonce: {
    words: 'a prepaid nonce is written down under another name, so that nobody knows that it is spent',
    changes: [
      change(
        'ledger/wallet-holds.ts',
        'select id, nonce, digest,',
        "select id, nonce || '/' || gen_random_uuid(), digest,",
      ),
      change(
        'ledger/wallet-holds.ts',
        'returning account_id, nonce as spent_nonce,',
        "returning account_id, split_part(nonce, '/', 1) as spent_nonce,",
      ),
    ],
  },
  release: {
    words: 'the reservation of a direct payment is released when the end of its settlement is not known',
    changes: [
      change(
        'payments/direct-hold.ts',
        "case 'unknown':\n        return",
        "case 'unknown':\n        await this.#parts.intake.release(payment);\n        return",
      ),
      change(
        'x402/reservations.ts',
        `where id = \${id} and fence = \${fence} and nonce = \${claim.nonce} and state = 'reserved'\`.execute(this.#db);\n    return numAffectedRows`,
        `where id = \${id} and nonce = \${claim.nonce}\`.execute(this.#db);\n    return numAffectedRows`,
      ),
    ],
    sql: 'drop trigger x402_payment_kept on x402_payment',
  },
  capture: {
    words: 'a capture books the charge twice',
    changes: [
      change(
        'ledger/hold.ts',
        'const posted = new Set(captured.rows.map(({ id }) => id));',
        `const posted = new Set(captured.rows.map(({ id }) => id));
  await statement\`
    with again as (
      insert into transfer (kind, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id, state, ended_at)
      select kind, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id, 'posted', now()
      from transfer where id = any(\${[...posted]}::bigint[])
      returning debit_account_id, amount_micro_usd
    ), due as (
      select debit_account_id as id, sum(amount_micro_usd)::bigint as amount from again group by 1
    )
    update account set balance_micro_usd = balance_micro_usd - due.amount from due where account.id = due.id\`.execute(db);`,
      ),
    ],
    sql: 'drop trigger transfer_begins on transfer',
  },
  credit: {
    words: 'a purchase is credited by the page, and again by the sweep of the processor’s sessions',
    changes: [
      change(
        'top-up/credit-top-up.ts',
        `where id = \${paid.topUpId} and state <> 'credited' and not`,
        `where id = \${paid.topUpId} and not`,
      ),
      change(
        'reconcile/credit-listed.ts',
        "if (state === 'credited' || (state !== undefined && session.payment_status !== 'paid')) continue;",
        "if (session.payment_status !== 'paid') continue;",
      ),
    ],
    sql: 'drop index transfer_top_up; drop trigger top_up_credited on top_up',
  },
} as const satisfies Readonly<Record<string, Sabotage>>;

export type SabotageName = keyof typeof SABOTAGES;

/** Compiles the service with the fault in it. @throws Error when what it changes is not in the code as it was */
export async function compileSabotaged(project: string, name: SabotageName): ReturnType<typeof compileService> {
  const { changes }: Sabotage = SABOTAGES[name];
  const made = new Set<object>();
  const service = await compileService(project, (path, original) => {
    let text = original;
    for (const change of changes.filter((change) => change.path === path)) {
      if (text.split(change.from).length !== 2) throw new Error(`${path} does not have once: ${change.from}`);
      text = text.replace(change.from, () => change.to);
      made.add(change);
    }
    return text;
  });
  const unmade = changes.find((change) => !made.has(change));
  if (!unmade) return service;
  await service.remove();
  throw new Error(`There is no ${unmade.path} to be changed.`);
}

/** Whether guards of the database are taken away for it. */
export const isWeakening = (name: SabotageName): boolean => 'sql' in SABOTAGES[name];

/** Takes the guards away that would refuse what the fault does. */
export async function weaken(databaseUrl: string, name: SabotageName): Promise<void> {
  const { sql }: Sabotage = SABOTAGES[name];
  if (sql === undefined) return;
  const client = new pg.Client(databaseUrl);
  await client.connect();
  await client.query(sql).finally(() => client.end());
}
