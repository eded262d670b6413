import { keccak256 } from '../../src/crypto/keccak.ts';
import { keyedWallet } from '../../test/support/keyed-wallet.ts';
import { signDigest } from '../../test/support/sign-digest.ts';
import { jsonPost } from './card.ts';
import { drawBytes } from './draws.ts';
import type { Open } from './flow.ts';
import { errorOf, isPassing, jsonOf, type Operation, type Outcome } from './operation.ts';
import { drawText } from './text.ts';

/** Feedback, each of a wallet of its own, sent again until it is known to be stored. */
export const openFeedback: Open = async () => ({ customer: { longestPauseMs: 600, buy: give }, bought: [] });

async function give(operation: Operation): Promise<Outcome> {
  const { random } = operation;
  const wallet = keyedWallet(drawBytes(random, 32));
  const told = { wallet: wallet.address, message: drawText(random), category: 'bug' };
  const come = (end: Outcome['end']): Outcome => ({
    ...{ flow: 'feedback', end, amountMicroUsd: 0n, keys: { payer: wallet.address } },
  });
  const granted = await operation.pursue(
    () => operation.ask(jsonPost('/feedback/challenge', told)),
    (heard) => (isPassing(heard) ? undefined : jsonOf(heard)),
  );
  if (granted === undefined) return come('open');
  const { challenge, signingMessage } = granted;
  const message = Buffer.from(String(signingMessage));
  const prefix = Buffer.from(`\x19Ethereum Signed Message:\n${message.length}`);
  const signature = signDigest(keccak256(Buffer.concat([prefix, message])), wallet.key);
  const stored = await operation.pursue(
    () => operation.ask(jsonPost('/feedback', { ...told, challenge, signature })),
    (heard) => {
      if (isPassing(heard)) return undefined;
      // An earlier one of these identical requests was stored.
      return heard.status === 201 || errorOf(heard)?.code === 'FEEDBACK_CHALLENGE_REPLAYED' ? 'served' : 'refused';
    },
  );
  return come(stored ?? 'open');
}
