/** The client for those who call a Speechgate service: package export `speechgate/client`. Runs in Node 20+ and browsers. */
export type { AccountBalance, Budget, KnownOfPurchase, Reservation } from './budget.ts';
export { cardCredits } from './card-credits.ts';
export type { Conclusion } from './conclude.ts';
export type { Deposit } from './deposit.ts';
export { type DirectOptions, directX402 } from './direct-x402.ts';
export * from './errors.ts';
export type { Feedback, MessageSigner } from './feedback.ts';
export type { Balance, PaymentWay, Wallet } from './payment-way.ts';
export type { Flow, PendingPurchase } from './pending-purchase.ts';
export { prepaid } from './prepaid.ts';
export type { Quote } from './quote.ts';
export { type SignedRest, signedRest } from './signed-rest.ts';
export type { Receipt, Speech, SpeechOrder } from './speech.ts';
export {
  type CallOptions,
  type DepositCallOptions,
  type SpeakOptions,
  Speechgate,
  type SpeechgateOptions,
} from './speechgate.ts';
export type { FollowedTrust, Metadata, PinnedKey } from './verify-metadata.ts';
