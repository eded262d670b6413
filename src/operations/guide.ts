import { routeOf, routes } from '../contract/routes.ts';
import { MAX_PER_DAY } from '../feedback/record.ts';
import { statusOf } from '../http/structured-error.ts';
import { ASYNC_TEXT_LENGTH } from '../jobs/asynchronous.ts';
import { MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH, SPEED } from '../speech/limits.ts';
import { MIN_TOP_UP_CENTS } from '../top-up/amount.ts';
import { IDENTIFIER_RULE } from '../x402/envelope.ts';
import { REPLAY_WINDOW_SECONDS } from '../x402/payment.ts';
import { endpointsOf, prepaidLimits, prepaidPayment, prepaidSteps } from './guide-prepaid.ts';

interface GuideOptions {
  readonly serviceName: string;
  readonly baseUrl: string;
  /** Of the contract. */
  readonly version: string;
  readonly speechTimeoutMs: number;
}

/** The machine-readable guide of GET /docs (R41). `/openapi.json` is the canonical contract. */
export function guide({ serviceName, baseUrl, version, speechTimeoutMs }: GuideOptions) {
  return {
    service: serviceName,
    version,
    description: 'Text to speech over HTTP, paid per request. Send text and a means of payment, get an MP3.',
    documentation: '/docs',
    openapi: { version: '3.0.3' as const, url: `${baseUrl}/openapi.json`, status: 'canonical' as const },
    limits: {
      maxTextLength: MAX_TEXT_LENGTH,
      getTtsMaxTextLength: MAX_QUERY_TEXT_LENGTH,
      characters: 'UTF-16 code units of the trimmed text',
      speed: SPEED,
      speechTimeoutSeconds: Math.ceil(speechTimeoutMs / 1000),
      asynchronousTextLength: ASYNC_TEXT_LENGTH,
      idempotencyKeyMaxLength: 512,
      minTopUpCents: MIN_TOP_UP_CENTS,
      ...prepaidLimits,
      feedbackMessageMaxLength: 4000,
      feedbackBodyMaxBytes: routeOf('submitFeedback').bodyLimit,
      feedbackPerWalletIn24Hours: MAX_PER_DAY,
    },
    payment: {
      cardCredits: {
        endpoints: endpointsOf('createSpeech', 'getSpeech'),
        identity: 'The bearer id of a prepaid credit account in header x-credit-account.',
        price: "Characters x the model's ratePerCharUsd, rounded up to a whole micro-USD (0.000001 USD).",
        funding: `${baseUrl}/top-up`,
        refunds: 'A request that fails after it was debited is refunded to the account.',
      },
      directX402: {
        endpoints: endpointsOf('createX402Speech', 'getX402Speech', 'createQuote'),
        protocol: 'x402 version 2, scheme exact, USDC; one EIP-3009 authorization for each request.',
        identity: 'None: the payment itself, in header payment-signature.',
        price: 'As with card credits; one micro-USD is one atomic unit of USDC.',
        identifier: `The extension payment-identifier is required: ${IDENTIFIER_RULE}.`,
        replayWindowSeconds: REPLAY_WINDOW_SECONDS,
        trust: `${baseUrl}${routeOf('getServiceMetadata').path}, verified under a key that was pinned out of band.`,
        refunds: 'None: payments are final, and settled only once the audio exists.',
      },
      prepaidX402: prepaidPayment({ serviceName, baseUrl }),
    },
    endpoints: routes.map(({ method, path, operationId }) => ({ method, path, operationId })),
    errorCodes: Object.keys(statusOf),
    agentGuide: {
      privacy:
        'Text sent before payment is neither logged nor stored nor forwarded. It reaches the speech provider once the ' +
        'request is paid, and is not kept after that; the text of a job is kept until the job ends.',
      cardCredits: [
        'GET /tts/models and pick a model and one of its voices.',
        'POST /tts with {"text": …} and x-credit-account; x-credit-max-amount caps the price, in micro-USD. Without credit ' +
          'the answer is 402 with topUpUrl.',
        'Let the account holder open topUpUrl and pay; the page shown after payment holds the account id.',
        'Repeat the request with x-credit-account. The answer is the audio; x-credit-charged and x-credit-balance say what ' +
          'was debited and what remains.',
      ],
      asynchronousJobs: [
        'POST /tts?async=true with x-credit-account and an idempotency-key of your own; the answer is 202 with a job.',
        'GET links.status until status is completed or failed. A failed job has been refunded.',
        'GET links.audio of the completed job. With storeAudio=false nothing is kept, and the answer is 410.',
      ],
      directX402: [
        'Verify the signed metadata under your pinned key; trust only its network, asset and payees.',
        'To keep the text back until payment, POST /x402/tts/quote with its length and SHA-256, then use quoteToken.',
        'POST /x402/tts with {"text": …} or {"quoteToken": …}; the answer is 402 with the challenge in PAYMENT-REQUIRED.',
        'Sign the entry of accepts with an x402 client, add a payment identifier of your own, and keep both.',
        'Repeat the same method, URL and body (a quoted one with its text) with payment-signature; the answer is the audio.',
        'When an answer is lost, repeat the identical request with the same payment: it is never settled twice.',
        'On PAYMENT_REPLAY_PENDING and PAYMENT_OUTCOME_UNKNOWN repeat the identical request later. Make no new payment ' +
          "without the user's approval.",
      ],
      prepaidX402: prepaidSteps,
      feedback: [
        'POST /feedback/challenge with {"wallet", "message", "category", "details"?}: the address of a wallet that can ' +
          'sign, the text, and one of integration_blocker, bug, pricing, feature_request, other.',
        'Sign signingMessage exactly as it is with EIP-191 personal_sign, such as signMessage({message}) of viem or ' +
          'ethers. It costs nothing and allows no payment.',
        'POST /feedback with the same wallet, message, category and details, and with challenge and signature (65 bytes ' +
          'in hexadecimal, 0x in front), before expiresAt. 201 means that it is stored, and reaches a person.',
        'A challenge is used once: 409 FEEDBACK_CHALLENGE_REPLAYED means that the feedback is stored already.',
      ],
    },
  };
}
