/** What the service says happened to the money of a payment (R64). */
export interface PaymentReport {
  readonly state: 'not_charged' | 'charged' | 'unknown';
  /** What was charged, or may have been; null where the service does not know. */
  readonly amountMicroUsd: bigint | null;
  /** Of the settlement on the chain. */
  readonly transaction: string | null;
}

const STATES: readonly unknown[] = ['not_charged', 'charged', 'unknown'] satisfies PaymentReport['state'][];

/** The report in an error's details; null when the error was decided before the payment was looked up. */
export function paymentReport(details: Readonly<Record<string, unknown>> | null): PaymentReport | null {
  const { state, amountMicroUsd, transaction } = (details?.payment ?? {}) as Record<string, unknown>;
  if (!STATES.includes(state)) return null;
  return {
    state: state as PaymentReport['state'],
    amountMicroUsd: Number.isSafeInteger(amountMicroUsd) ? BigInt(amountMicroUsd as number) : null,
    transaction: typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction) ? transaction : null,
  };
}
