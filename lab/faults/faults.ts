/** A planted fault: a small mistake in `src/`, kept as a patch. The named tests fail while it is applied. */
export interface Fault {
  /** Its file in `lab/faults/`, without `.patch`. */
  readonly patch: string;
  readonly says: string;
  readonly tests: readonly string[];
}

export const FAULTS: readonly Fault[] = [
  {
    patch: 'price/rounds-down',
    says: 'the price is rounded down',
    tests: ['test/config/catalog.test.ts'],
  },
  {
    patch: 'price/rate-of-default-model',
    says: "every model has the default model's rate",
    tests: ['test/journeys/card.test.ts'],
  },
  {
    patch: 'price/prepaid-maximum-ignored',
    says: 'x-x402-max-amount only has to be above 0',
    tests: ['test/journeys/prepaid-spending.test.ts'],
  },
  {
    patch: 'price/client-counts-bytes',
    says: 'the client signs a maximum for bytes instead of UTF-16 code units',
    tests: ['test/callers/client/purchases.test.ts'],
  },
  {
    patch: 'price/budget-limit-excluded',
    says: 'a budget refuses a purchase that reaches its limit exactly',
    tests: ['test/callers/budget/file-budget.test.ts'],
  },
  {
    patch: 'holds/nonce-not-consumed',
    says: 'a prepaid nonce can be spent again',
    tests: ['test/journeys/prepaid-spending.test.ts'],
  },
  {
    patch: 'holds/balance-not-compared',
    says: 'a card hold is placed without comparing the balance',
    tests: ['test/journeys/card.test.ts'],
  },
  {
    patch: 'holds/job-captured-without-audio',
    says: 'a job is captured although its audio was not stored',
    tests: ['test/jobs/run.test.ts'],
  },
  {
    patch: 'holds/expired-holds-refunded-as-one',
    says: 'of several expired holds of one account only the largest is refunded',
    tests: ['test/reconcile/expired-holds.test.ts'],
  },
  {
    patch: 'holds/refund-booked-twice',
    says: "a card refund is booked each time the processor's list is read",
    tests: ['test/payments/top-up/clawbacks.test.ts'],
  },
  {
    patch: 'replay/digest-without-body',
    says: 'the digest of a prepaid request leaves out its body',
    tests: ['test/journeys/x402-prepaid-repeated.test.ts'],
  },
  {
    patch: 'replay/deposit-settings-before-look-up',
    says: 'a repeated deposit is refused by the settings before its look-up',
    tests: ['test/payments/look-up.test.ts'],
  },
  {
    patch: 'replay/request-not-compared',
    says: 'the same authorization replays its audio to any request',
    tests: ['test/payments/look-up.test.ts'],
  },
  {
    patch: 'replay/key-shared-by-accounts',
    says: 'an idempotency key finds the job of any account',
    tests: ['test/jobs/accept.test.ts'],
  },
  {
    patch: 'replay/link-opens-any-audio',
    says: 'a signed link opens the audio of any id',
    tests: ['test/journeys/x402-prepaid-repeated.test.ts'],
  },
  {
    patch: 'settlement/one-block-confirms',
    says: 'a deposit is credited with its first block',
    tests: ['test/faults/x402-deposit-confirmation.test.ts'],
  },
  {
    patch: 'settlement/named-transaction-treated-as-failed',
    says: 'a refused settle counts as failed although it names a transaction',
    tests: ['test/payments/x402/remote-services.test.ts'],
  },
  {
    patch: 'settlement/overpayment-accepted',
    says: 'an authorization above the price is accepted',
    tests: ['test/journeys/x402-direct.test.ts'],
  },
  {
    patch: 'settlement/foreign-token-accepted',
    says: 'the events of any contract prove a payment',
    tests: ['test/payments/x402/remote-services.test.ts'],
  },
  {
    patch: 'settlement/settled-deposit-booked-again',
    says: 'a payment that is settled is booked again',
    tests: ['test/ledger/transfers.test.ts'],
  },
  {
    patch: 'refusals/overloaded-upstream-is-502',
    says: "an upstream's 429 is 502 instead of 503",
    tests: ['test/speech/openai-compatible-refusals.test.ts'],
  },
  {
    patch: 'refusals/unknown-outcome-without-retry-after',
    says: 'PAYMENT_OUTCOME_UNKNOWN has no Retry-After',
    tests: ['test/faults/x402-settle.test.ts'],
  },
  {
    patch: 'refusals/unknown-account-called-empty',
    says: 'an unknown card account is refused for insufficient funds',
    tests: ['test/journeys/card.test.ts'],
  },
  {
    patch: 'refusals/new-payment-not-shown',
    says: 'a refusal after the look-up of a new payment has no details.payment',
    tests: ['test/payments/strategies.test.ts'],
  },
  {
    patch: 'refusals/rate-limit-without-window',
    says: 'a 429 leaves out the length of its window',
    tests: ['test/http/edge.test.ts'],
  },
  {
    patch: 'audio/truncated-mp3-accepted',
    says: 'an MP3 cut within its last frame is sold',
    tests: ['test/speech/audio-format.test.ts'],
  },
  {
    patch: 'audio/wav-sold-as-mpeg',
    says: 'x402 sells a WAV as audio/mpeg',
    tests: ['test/journeys/prepaid-spending.test.ts'],
  },
  {
    patch: 'audio/cut-stream-ends-orderly',
    says: 'a stream that the upstream breaks off ends like a whole one',
    tests: ['test/payments/streamed.test.ts'],
  },
  {
    patch: 'audio/client-accepts-cut-audio',
    says: 'the client takes audio that is cut off',
    tests: ['test/callers/client/unreliable-service.test.ts', 'test/callers/cut-audio.test.ts'],
  },
  {
    patch: 'audio/bridge-ends-cut-audio',
    says: 'the bridge ends a response orderly when its audio breaks off',
    tests: ['test/callers/bridge/programs.test.ts'],
  },
];
