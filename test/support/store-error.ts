import assert from 'node:assert/strict';
import { StoreError } from '../../src/speech/store/audio-store.ts';

/** For `assert.rejects`. */
export const isStoreError = (reason: StoreError['reason']) => (error: unknown) => {
  assert.ok(error instanceof StoreError, String(error));
  assert.equal(error.reason, reason);
  return true;
};
