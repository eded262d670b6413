import type { Rule } from './rule.ts';

/** Work that reconcilers and workers must finish. What remains later is a fault. */
export const OPEN_RULES: readonly Rule[] = [
  {
    kind: 'hold left',
    words: 'a hold is neither captured nor void',
    sql: `select null::integer as told, 'transfer ' || id || ', trace ' || trace_id as detail
          from transfer where state = 'pending'`,
  },
  {
    kind: 'hold left',
    words: 'a job has not ended',
    sql: `select null::integer as told, 'job ' || id || ' is ' || state as detail
          from job where state in ('queued', 'processing')`,
  },
  {
    kind: 'hold left',
    words: 'a payment has not ended',
    sql: `select null::integer as told, 'payment ' || id || ' is ' || state as detail
          from x402_payment where state in ('reserved', 'settling', 'unknown')`,
  },
];
