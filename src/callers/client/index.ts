/**
 * `speechgate/client`, and the entry `./x402` of the package for callers: all ways to pay. For Node.js 20+ and browsers.
 */
export { type SignedRest, signedRest } from './book.ts';
export type { AccountBalance, Budget, KnownOfPurchase, Reservation } from './budget.ts';
export type { Conclusion } from './buy.ts';
export { cardCredits } from './card-credits.ts';
export type { Quote } from './catalog.ts';
export type { Deposit } from './deposit.ts';
export { type DirectOptions, directX402 } from './direct-x402.ts';
export * from './errors.ts';
export type { Feedback, MessageSigner } from './feedback.ts';
export type { UsedCap } from './money-text.ts';
export type { Balance, PaymentWay, TypedData, Wallet } from './payment-way.ts';
export type { Flow, PendingPurchase } from './pending-purchase.ts';
export { prepaid } from './prepaid.ts';
export type { Receipt, Speech, SpeechOrder } from './speech.ts';
export {
  type CallOptions,
  type DepositCallOptions,
  type SpeakOptions,
  Speechgate,
  type SpeechgateOptions,
} from './speechgate.ts';
export type { FollowedTrust, Metadata, PinnedKey } from './trusted-metadata.ts';
