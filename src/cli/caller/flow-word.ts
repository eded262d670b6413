import type { Flow } from '../../client/pending-purchase.ts';
import { UsageError } from '../usage-error.ts';

const FLOWS = { card: 'card', x402: 'direct', prepaid: 'prepaid' } as const;

/**
 * The flow that --pay, SPEECHGATE_PAY or the settings name.
 * @throws UsageError
 */
export function readFlow(word: string, name: string): Flow {
  if (Object.hasOwn(FLOWS, word)) return FLOWS[word as keyof typeof FLOWS];
  throw new UsageError(`${name} takes ${Object.keys(FLOWS).join(', ')}; it is ${word}.`);
}

/** As callers say it. */
export const flowWord = (flow: Flow): string => (flow === 'direct' ? 'x402' : flow);
