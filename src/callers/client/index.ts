/**
 * `speechgate/client`, and the entry `./x402` of the package for callers: all ways to pay. For Node.js 20+ and browsers.
 * Its `Speechgate` takes the place of the one that pays by card only.
 */
export { type SignedRest, signedRest } from './book.ts';
export * from './card.ts';
export type { Deposit } from './deposit.ts';
export { type DirectOptions, directX402 } from './direct-x402.ts';
export type { Feedback, MessageSigner } from './feedback.ts';
export { prepaid } from './prepaid.ts';
export { type DepositCallOptions, Speechgate, type SpeechgateOptions } from './speechgate.ts';
export type { FollowedTrust, Metadata, PinnedKey } from './trusted-metadata.ts';
