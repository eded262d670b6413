import { createHash, createHmac } from 'node:crypto';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Utterance } from '../speech/provider.ts';

/** What of an idempotency key reaches the database (R17). */
export interface Idempotency {
  /** Scoped to the account, so that equal keys of two accounts have nothing in common. */
  readonly key: Buffer;
  /** Of the request, keyed with what only the caller knows: it tells nothing about a text that has been erased (R18). */
  readonly request: Buffer;
}

/** Two requests are the same when they would be spoken and kept alike. */
export function idempotency(
  key: string,
  accountId: string,
  request: { readonly utterance: Utterance; readonly storeAudio: boolean },
): Idempotency {
  const { text, model, voice, speed } = request.utterance;
  const canonical = canonicalize({ text, model, voice, speed, storeAudio: request.storeAudio });
  return {
    key: createHash('sha256').update(`${accountId}\n${key}`).digest(),
    request: createHmac('sha256', key).update(canonical).digest(),
  };
}
