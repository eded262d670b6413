import type { LocalAccount } from 'viem';
import type { FeedbackChallenge, FeedbackChallengeRequest, FeedbackReceipt } from '../contract/types.ts';
import { signingMessage } from '../feedback/signing-message.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Wire } from './api.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { read } from './reading.ts';
import { timeOf } from './verify-metadata.ts';

/** What is told to the operator. */
export type Feedback = Omit<Wire<FeedbackChallengeRequest>, 'wallet'>;

/** A wallet that signs text. */
export type MessageSigner = Pick<LocalAccount, 'address' | 'signMessage'>;

const CHALLENGE = {
  challenge: 'string',
  nonce: 'string',
  issuedAt: 'string',
  expiresAt: 'string',
  signingMessage: 'string',
} as const;
/** The name of a service, as its settings allow it. */
const NAME = /^Sign this message to send your feedback to ([\x20-\x7e]{1,100})\.\n/;
const NONCE = /^[0-9a-f-]{36}$/;

/**
 * Sends feedback that the wallet signs (EIP-191). What is signed is built here; of the service it has the name, the nonce
 * and the times.
 * @throws UntrustedError when the service wants another text to be signed
 */
export async function sendFeedback(
  wallet: MessageSigner,
  feedback: Feedback,
  { api, baseUrl }: Service,
  signal: AbortSignal | undefined,
): Promise<FeedbackReceipt> {
  const body = { ...feedback, wallet: wallet.address };
  const asked = await read(signal, CHALLENGE, (signal) => api.POST('/feedback/challenge', { body, signal }));
  const message = await expectedMessage(asked, { ...feedback, wallet: wallet.address.toLowerCase() }, baseUrl);
  const { challenge } = asked;
  if (asked.signingMessage !== message) {
    throw new UntrustedError(
      'wrong_message',
      `The service wants another text to be signed than that of this feedback for ${baseUrl}. Nothing was signed.`,
    );
  }
  const signature = await wallet.signMessage({ message });
  return read(signal, { feedbackId: 'string', notification: 'string' }, (signal) =>
    api.POST('/feedback', { body: { ...body, challenge, signature }, signal }),
  );
}

/** The text that this feedback's challenge makes; undefined where one of its parts is none. */
async function expectedMessage(
  { nonce, issuedAt, expiresAt, signingMessage: text }: Wire<FeedbackChallenge>,
  feedback: Feedback & { readonly wallet: string },
  baseUrl: string,
): Promise<string | undefined> {
  const serviceName = NAME.exec(text)?.[1];
  if (serviceName === undefined || !NONCE.test(nonce)) return undefined;
  const challenge = {
    wallet: feedback.wallet,
    payloadSha256: await sha256(canonicalize(feedback)),
    nonce,
    issuedAt: new Date(timeOf(issuedAt)),
    expiresAt: new Date(timeOf(expiresAt)),
  };
  return signingMessage({ serviceName, baseUrl }, challenge, feedback.category);
}
