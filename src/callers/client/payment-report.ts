/** The state of a payment as the service reports it (R64). */
export interface PaymentReport {
  readonly state: 'not_charged' | 'charged' | 'unknown';
  /** The charged or possibly charged amount; null when the service does not know it. */
  readonly amountMicroUsd: bigint | null;
  readonly transaction: string | null;
}

const STATES: readonly unknown[] = ['not_charged', 'charged', 'unknown'] satisfies PaymentReport['state'][];

/** Null when the service failed before it looked up the payment. */
export function paymentReport(details: Readonly<Record<string, unknown>> | null): PaymentReport | null {
  const { state, amountMicroUsd, transaction } = (details?.payment ?? {}) as Record<string, unknown>;
  if (!STATES.includes(state)) return null;
  return {
    state: state as PaymentReport['state'],
    amountMicroUsd: Number.isSafeInteger(amountMicroUsd) ? BigInt(amountMicroUsd as number) : null,
    transaction: typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction) ? transaction : null,
  };
}
