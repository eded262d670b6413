import type { Parameter } from './model.ts';
import type { Raw } from './references.ts';

export const EDGE_TERMS = ['always', 'unless-verified'] as const;
export const WINDOW_KEYS = ['account', 'ip', 'feedback', 'top-up', 'audio'] as const;
export const WINDOW_TERMS = ['request', 'payment', 'failed-payment', 'failed-credential'] as const;

/**
 * `x-rate-limits`: which limits count a request of the operation (R48).
 *
 *     edge         always: each request counts for its address; unless-verified: not with a valid credential
 *     window.by    whose slots a window has: a credit account's, an address's (ip, feedback, top-up) or a link's (audio)
 *     window.when  what takes a slot: any request, a shown payment, a payment that failed, a credential that failed
 */
export interface RateLimitTerms {
  edge: (typeof EDGE_TERMS)[number];
  /** The header that shows a credential, where the edge does not count requests whose credential verifies. */
  credential?: string;
  window?: { by: (typeof WINDOW_KEYS)[number]; when: (typeof WINDOW_TERMS)[number][] };
}

/** Reads an operation's `x-rate-limits`, and adds to `problems` what is wrong with it. */
export function readRateLimits(raw: Raw | undefined, parameters: Parameter[], where: string, problems: string[]) {
  const fault = (message: string) => problems.push(`${where}: x-rate-limits ${message}`);
  const oneOf = (what: string, value: unknown, known: readonly unknown[]) => {
    if (!known.includes(value)) fault(`${what} is ${value}; known are ${known.join(', ')}`);
  };
  if (raw === undefined) {
    fault('is missing; it says which limits count a request');
    return { edge: 'always' } satisfies RateLimitTerms;
  }
  const { edge, credential, window, ...others } = raw;
  const { by, when, ...more } = window ?? {};
  for (const name of Object.keys({ ...others, ...more })) fault(`has an unknown member ${name}`);
  oneOf('edge', edge, EDGE_TERMS);
  if ((edge === 'unless-verified') !== (credential !== undefined)) {
    fault('names the header of a credential exactly where edge is unless-verified');
  }
  if (credential !== undefined && !parameters.some((header) => header.in === 'header' && header.name === credential)) {
    fault(`credential ${credential} is no header that the operation declares`);
  }
  if (window !== undefined) {
    oneOf('window.by', by, WINDOW_KEYS);
    if (!Array.isArray(when) || when.length === 0) fault('window.when must list when a slot is taken');
    else for (const term of when) oneOf('window.when', term, WINDOW_TERMS);
  }
  return raw as RateLimitTerms;
}
