import type { LocalAccount } from 'viem';
import type { FeedbackChallengeRequest, FeedbackReceipt } from '../contract/types.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Wire } from './api.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { read } from './reading.ts';

/** What is told to the operator. */
export type Feedback = Omit<Wire<FeedbackChallengeRequest>, 'wallet'>;

/** A wallet that signs text. */
export type MessageSigner = Pick<LocalAccount, 'address' | 'signMessage'>;

/**
 * Sends feedback that the wallet signs (EIP-191). The text to sign comes from the service; it is signed only when it says
 * what it is and names this feedback's digest.
 * @throws UntrustedError when it does not
 */
export async function sendFeedback(
  wallet: MessageSigner,
  feedback: Feedback,
  { api }: Service,
  signal: AbortSignal | undefined,
): Promise<FeedbackReceipt> {
  const body = { ...feedback, wallet: wallet.address };
  const { data } = await read(signal, (signal) => api.POST('/feedback/challenge', { body, signal }));
  const { challenge, signingMessage } = data;
  const digest = await sha256(canonicalize({ ...feedback, wallet: wallet.address.toLowerCase() }));
  if (!signingMessage.startsWith('Sign this message to send your feedback') || !signingMessage.includes(digest)) {
    throw new UntrustedError('wrong_message', 'The service wants something else than this feedback to be signed.');
  }
  const signature = await wallet.signMessage({ message: signingMessage });
  const sent = await read(signal, (signal) =>
    api.POST('/feedback', { body: { ...body, challenge, signature }, signal }),
  );
  return sent.data;
}
