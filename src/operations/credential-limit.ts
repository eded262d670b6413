import type { OperationContext } from '../http/operation-context.ts';
import type { Refused } from '../payments/refusal.ts';

/** Counts what a credential turned out to be (R48): the 429 when its address has shown too many that fail. */
export async function limitCredential({ credential }: Refused, { admission }: OperationContext) {
  if (credential === 'verified') admission.credentialVerified();
  return credential === 'failed' ? admission.credentialFailed() : undefined;
}
