import type { FeedbackChallenge, FeedbackChallengeRequest, FeedbackReceipt } from '../../contract/types.ts';
import { signingMessage } from '../../feedback/signing-message.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { readJson, type Wire } from './api.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { timeOf } from './trusted-metadata.ts';

export type Feedback = Omit<Wire<FeedbackChallengeRequest>, 'wallet'>;

/** A viem account, or any other signer of messages (EIP-191) with an address. */
export interface MessageSigner {
  readonly address: `0x${string}`;
  signMessage(signed: { readonly message: string }): Promise<`0x${string}`>;
}

const CHALLENGE = {
  challenge: 'string',
  nonce: 'string',
  issuedAt: 'string',
  expiresAt: 'string',
  signingMessage: 'string',
} as const;
const NAME = /^Sign this message to send your feedback to ([\x20-\x7e]{1,100})\.\n/;
const NONCE = /^[0-9a-f-]{36}$/;

/** Builds the signed text (EIP-191) locally; the service supplies only name, nonce and times. @throws UntrustedError */
export async function sendFeedback(
  wallet: MessageSigner,
  feedback: Feedback,
  { api, baseUrl }: Service,
  signal: AbortSignal | undefined,
): Promise<FeedbackReceipt> {
  const body = { ...feedback, wallet: wallet.address };
  const received = await readJson(signal, CHALLENGE, (signal) => api.POST('/feedback/challenge', { body, signal }));
  const message = await expectedMessage(received, { ...feedback, wallet: wallet.address.toLowerCase() }, baseUrl);
  if (received.signingMessage !== message) {
    throw new UntrustedError(
      'wrong_message',
      `signingMessage from ${baseUrl} is not the text for this feedback. Ask the operator of the service. Nothing was signed.`,
    );
  }
  const { challenge } = received;
  const signature = await wallet.signMessage({ message });
  return readJson(signal, { feedbackId: 'string', notification: 'string' }, (signal) =>
    api.POST('/feedback', { body: { ...body, challenge, signature }, signal }),
  );
}

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
