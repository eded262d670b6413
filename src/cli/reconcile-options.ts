import { readMoment } from '../lib/moment.ts';
import type { PaymentPurpose } from '../x402/payment.ts';
import { parseCommandLine } from './arguments.ts';

/** A transaction of the chain, or one transfer of it, that the operator has decided on. */
export interface Decision {
  /** In lower case. */
  readonly transaction: string;
  /** Undefined for every transfer of the transaction that the database has no payment of. */
  readonly logIndex: number | undefined;
  readonly purpose: PaymentPurpose;
}

/** What `--since` looks for, and what may be booked of it. */
export interface SinceOptions {
  /** The moment that the database was restored to, or an earlier one. */
  readonly since: Date;
  /** Whether transfers that by their amount can be one thing only are booked as that. */
  readonly bookPlain: boolean;
  readonly decisions: readonly Decision[];
  readonly json: boolean;
}

const USAGE = `speechgate reconcile takes nothing, or
  --since TIME            the moment that the database was restored to, such as 2026-11-23T04:00:00Z
  --book                  with --since: book the transfers that by their amount can be one thing only
  --deposit TX[:LOG]      with --since: book this transfer as a deposit of its payer; may be repeated
  --speech TX[:LOG]       with --since: book this transfer as paid for speech; may be repeated
  --json                  with --since: one JSON object`;

const TRANSFER = /^(0x[0-9a-fA-F]{64})(?::(\d{1,7}))?$/;

/** The options of `npm run reconcile`, or what is wrong with them. */
export function readReconcileOptions(args: readonly string[]): { since?: SinceOptions } | { fault: string } {
  let values: ReturnType<typeof parse>;
  try {
    values = parse(args);
  } catch (error) {
    return { fault: `${(error as Error).message}\n${USAGE}` };
  }
  if (values.since === undefined) {
    return Object.keys(values).length === 0 ? {} : { fault: `--since is missing.\n${USAGE}` };
  }
  const since = readMoment(values.since);
  if (!since) {
    return {
      fault: `--since takes a date, or date, time and zone, such as 2026-11-23T04:00:00Z; it is ${values.since}.`,
    };
  }
  if (since.getTime() > Date.now()) return { fault: `--since lies ahead: ${values.since}.` };
  const decisions: Decision[] = [];
  for (const purpose of ['deposit', 'speech'] as const) {
    for (const text of values[purpose] ?? []) {
      const [, transaction, logIndex] = TRANSFER.exec(text) ?? [];
      if (!transaction) return { fault: `--${purpose} takes TX or TX:LOG, as they are printed; it is ${text}.` };
      const place = logIndex === undefined ? undefined : Number(logIndex);
      decisions.push({ transaction: transaction.toLowerCase(), logIndex: place, purpose });
    }
  }
  return { since: { since, bookPlain: values.book ?? false, decisions, json: values.json ?? false } };
}

const parse = (args: readonly string[]) =>
  parseCommandLine({
    args: [...args],
    options: {
      since: { type: 'string' },
      book: { type: 'boolean' },
      deposit: { type: 'string', multiple: true },
      speech: { type: 'string', multiple: true },
      json: { type: 'boolean' },
    },
  }).values;
