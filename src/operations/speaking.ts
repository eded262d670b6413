import type { Admission } from '../speech/admission.ts';

/** What speaks while a caller waits. */
export interface Speaking {
  readonly admission: Admission;
  /** Longest synthesis that is collected before it is paid. */
  readonly timeoutMs: number;
}
