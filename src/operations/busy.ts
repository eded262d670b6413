import { failure } from '../http/errors.ts';
import type { WorkRefusal } from '../limits/unpaid-work.ts';
import { WORK_MESSAGES } from '../payments/refusal.ts';

/** Seconds until a payer that is held to one request at a time may try again. */
export const ONE_AT_A_TIME_RETRY_SECONDS = 5;

/** The 429 of an account whose unpaid work leaves no room for more now. Nothing was debited. */
export const busy = (reason: WorkRefusal) => ({
  ...failure('RATE_LIMITED', WORK_MESSAGES[reason], { reason, retryAfterSeconds: ONE_AT_A_TIME_RETRY_SECONDS }),
  headers: { 'retry-after': ONE_AT_A_TIME_RETRY_SECONDS },
});
