/** The entry `.` of the package for callers, for Node.js 20+ and browsers: card credit, and all that needs no wallet. */
export type { AccountBalance, Budget, KnownOfPurchase, Reservation } from './budget.ts';
export type { Conclusion } from './buy.ts';
export { cardCredits } from './card-credits.ts';
export type { Quote } from './catalog.ts';
export * from './errors.ts';
export type { UsedCap } from './money-text.ts';
export type { Balance, PaymentWay, TypedData, Wallet } from './payment-way.ts';
export type { Flow, PendingPurchase } from './pending-purchase.ts';
export type { Receipt, Speech, SpeechOrder } from './speech.ts';
export {
  type CallOptions,
  type ClientOptions as SpeechgateOptions,
  type SpeakOptions,
  SpeechClient as Speechgate,
} from './speech-client.ts';
