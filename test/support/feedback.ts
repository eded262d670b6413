import type { Gateway, Reply } from './gateway.ts';
import type { Wallet } from './wallet.ts';

export interface Feedback {
  readonly message: string;
  readonly category: string;
  readonly details?: Record<string, unknown>;
}

export const BUG: Feedback = {
  message: 'The 402 names no amount.',
  category: 'bug',
  details: { agent: 'shop-assistant/1.4', endpoint: 'POST /tts', lastHttpStatus: 402 },
};

/** Asks for a challenge, which has to be granted, and signs it. */
export async function signedFeedback(gateway: Pick<Gateway, 'call'>, wallet: Wallet, feedback: Feedback = BUG) {
  const challenge = await gateway.call('/feedback/challenge', {
    method: 'POST',
    json: { wallet: wallet.address, ...feedback },
  });
  if (challenge.status !== 200) throw new Error(`no challenge: ${challenge.text}`);
  const { challenge: token, signingMessage } = challenge.json;
  return { wallet: wallet.address, challenge: token, signature: await wallet.sign(signingMessage), ...feedback };
}

export const submit = (gateway: Pick<Gateway, 'call'>, json: unknown): Promise<Reply> =>
  gateway.call('/feedback', { method: 'POST', json });

/** Both steps. */
export const give = async (gateway: Pick<Gateway, 'call'>, wallet: Wallet, feedback?: Feedback): Promise<Reply> =>
  submit(gateway, await signedFeedback(gateway, wallet, feedback));
