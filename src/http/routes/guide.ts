import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import type { Config } from '../../config/config.ts';
import { ASYNC_TEXT_LENGTH, MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH, SPEED } from '../../config/speech-limits.ts';
import { routeOf, routes } from '../../contract/routes.ts';
import type { OpenApiDocument } from '../../contract/types.ts';
import { MAX_PER_DAY } from '../../feedback/submit.ts';
import { CANONICAL_QUERY_VECTORS, PAYMENT_VECTOR, SIGNING_VECTORS } from '../../payments/prepaid/prepaid-vectors.ts';
import { IDENTIFIER_RULE } from '../../payments/x402/envelope.ts';
import { REPLAY_WINDOW_SECONDS } from '../../payments/x402/payment.ts';
import { PREPAID } from '../../payments/x402/prepaid-terms.ts';
import { PREPAID_SIGNING, PREPAID_TYPES, prepaidDomainName } from '../../payments/x402/signed-types.ts';
import { statusOf } from '../structured-error.ts';

export interface ServiceOptions {
  readonly serviceName: string;
  readonly baseUrl: string;
  readonly speechTimeoutMs: number;
  readonly contract: OpenApiDocument;
}

/** The legacy guide at GET /docs, kept for the steps of each flow (R41). `/openapi.json` is the canonical contract. */
export function guide({ serviceName, baseUrl, speechTimeoutMs, contract }: ServiceOptions) {
  return {
    service: serviceName,
    version: contract.info.version,
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
      minDepositMicroUsd: PREPAID.minDepositMicroUsd,
      maxDepositMicroUsd: PREPAID.maxDepositMicroUsd,
      depositConfirmations: PREPAID.depositConfirmations,
      depositTimeoutSeconds: PREPAID.depositTimeoutSeconds,
      prepaidSignatureLifetimeSeconds: PREPAID.signatureTtlSeconds,
      prepaidNonceMaxLength: PREPAID.maxNonceLength,
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
        identity: 'No account: the payment in header payment-signature names its payer.',
        price: 'The same as with card credits. One micro-USD is one atomic unit of USDC.',
        identifier: `The extension payment-identifier is required: ${IDENTIFIER_RULE}.`,
        replayWindowSeconds: REPLAY_WINDOW_SECONDS,
        trust: `${baseUrl}${routeOf('getServiceMetadata').path}, verified with a pinned key, which the operator gave you over another channel.`,
        refunds: 'None: payments are final, and settled only once the audio exists.',
        vector: PAYMENT_VECTOR,
      },
      prepaidX402: prepaidPayment(serviceName, baseUrl),
    },
    endpoints: routes.map(({ method, path, operationId }) => ({ method, path, operationId })),
    errorCodes: Object.keys(statusOf),
    agentGuide: {
      privacy:
        'Text sent before payment is neither logged nor stored nor forwarded. It reaches the speech provider once the ' +
        'payment is held or checked, and is not kept after that; the text of a job is kept until the job ends.',
      cardCredits: [
        'GET /tts/models and pick a model and one of its voices.',
        'POST /tts with {"text": …} and x-credit-account; x-credit-max-amount caps the price, in micro-USD. Without credit ' +
          'the answer is 402 with topUpUrl.',
        'Let the account holder open topUpUrl and pay; the page shown after payment holds the account id.',
        'Repeat the request with x-credit-account. The answer is the audio; x-credit-charged and x-credit-balance say what ' +
          'was debited and what remains.',
      ],
      asynchronousJobs: [
        'POST /tts?async=true with x-credit-account and an idempotency-key of your own; the response is 202 with a job.',
        'GET links.status until status is completed or failed. A failed job has been refunded.',
        'GET links.audio of the completed job. With storeAudio=false it is null: the job is charged, but its audio is not ' +
          'stored.',
      ],
      directX402: [
        'Verify the signed metadata under your pinned key; trust only its network, asset and payees.',
        'To send the text only when you pay, first POST /x402/tts/quote with its textLength and textSha256. The response ' +
          'has a quoteToken for the next step.',
        'POST /x402/tts with {"text": …} or {"quoteToken": …}; the response is 402 with the challenge in PAYMENT-REQUIRED.',
        'Sign the entry of accepts with an x402 client, add a payment identifier of your own, and keep both.',
        'Repeat the same method, URL and body (a quoted one with its text) with payment-signature; the response is the audio.',
        'When a response is lost, repeat the identical request with the same payment: it is never settled twice.',
        'On PAYMENT_REPLAY_PENDING and PAYMENT_OUTCOME_UNKNOWN repeat the identical request later. Make no new payment ' +
          "without the user's approval.",
      ],
      prepaidX402: prepaidSteps,
      feedback: [
        'POST /feedback/challenge with {"wallet", "message", "category", "details"?}: the address of a wallet that can ' +
          'sign, the text, and one of integration_blocker, bug, pricing, feature_request, other.',
        'Sign signingMessage exactly as it is with EIP-191 personal_sign, such as signMessage({message}) of viem or ' +
          'ethers. It costs nothing and authorizes no payment.',
        'POST /feedback with the same wallet, message, category and details, and with challenge and signature (65 bytes ' +
          'in hexadecimal, 0x in front), before expiresAt. 201 means that it is stored for the operator.',
        'A challenge is used once: 409 FEEDBACK_CHALLENGE_REPLAYED means that the feedback is stored already.',
      ],
    },
  };
}

/** GET /llms.txt: what an agent needs to find the rest. */
export function agentNotes({
  serviceName,
  baseUrl,
  card,
  x402,
}: ServiceOptions & Pick<Config, 'card' | 'x402'>): string {
  const hasUsdc = x402?.rpcUrls !== undefined;
  const lines = [
    `# ${serviceName}`,
    '',
    '> Text to speech over HTTP, paid per request. Send text and a means of payment, get an MP3.',
    '',
    "A request costs characters x the model's rate, rounded up to a whole micro-USD (0.000001 USD). Failed speech costs nothing.",
    'Errors are {"error": {"code", "message", "details"}}; details.payment, if present, says what happened to the money.',
    '',
    '## How to pay',
    '',
    card &&
      '- Card credit: POST /tts with {"text": …} and the account id in x-credit-account. Without credit the answer is 402 with ' +
        'topUpUrl, where a person buys some. The audio arrives while it is spoken.',
    hasUsdc &&
      '- Direct x402: POST /x402/tts with {"text": …}. The answer is 402 with a challenge in PAYMENT-REQUIRED (x402 version 2, ' +
        'exact, USDC). Sign it with a payment identifier of your own, and repeat the identical request with payment-signature.',
    hasUsdc &&
      '- Prepaid x402: POST /x402/deposit once, then sign each request to /x402/tts (EIP-712). A deposit is not paid back.',
    '',
    'If no answer arrives, repeat the identical x402 request with the same payment: it is never charged twice. A repeated',
    'card request is a new purchase; read GET /credits/{accountId} first.',
    '',
    '## Links',
    '',
    `- [Guide](${baseUrl}/docs): the steps of each way to pay, limits, error codes, test vectors (JSON, for browsers a page)`,
    `- [Contract](${baseUrl}/openapi.json): OpenAPI 3.0.3`,
    `- [Models](${baseUrl}/tts/models): models, voices and rates`,
    card && `- [Add credit](${baseUrl}/top-up): for people, in a browser`,
    hasUsdc && `- [Metadata](${baseUrl}${routeOf('getServiceMetadata').path}): network, asset and payees, signed`,
    '',
  ];
  return lines.filter((line) => typeof line === 'string').join('\n');
}

const endpointsOf = (...operationIds: string[]): string[] =>
  operationIds.map(routeOf).map(({ method, path }) => `${method} ${path}`);

const [ACCOUNT, NONCE, EXPIRY, MAX_AMOUNT, SIGNATURE] = PREPAID_SIGNING.headers;

const prepaidPayment = (serviceName: string, baseUrl: string) => ({
  endpoints: endpointsOf('createDeposit', 'getPrepaidAccount', 'createX402Speech', 'getX402Speech', 'getPrepaidAudio'),
  identity:
    "The payer's EVM address. It is public; each request is authorized by its signature. It must be an externally owned " +
    'account: deposits signed by smart accounts (EIP-1271) are refused.',
  price: 'As with direct payment. A request is charged once, or not at all.',
  funding: `POST /x402/deposit: one USDC payment as under directX402, credited once it has ${PREPAID.depositConfirmations} confirmations.`,
  trust: `${baseUrl}${routeOf('getServiceMetadata').path}, verified with a pinned key, which the operator gave you over another channel.`,
  refunds: 'None: a deposit can be spent but not withdrawn. If a request fails, its price returns to the balance.',
  authentication: {
    scheme: 'EIP-712 typed data, secp256k1',
    domain: {
      name: prepaidDomainName(serviceName),
      version: PREPAID_SIGNING.domainVersion,
      chainId: 'prepaid.authentication.chainId of the signed metadata',
      verifyingContract:
        'the address in payment.payees of the signed metadata whose status is current; one that is retiring is ' +
        'honoured until its validUntil',
    },
    primaryType: PREPAID_SIGNING.primaryType,
    types: { PrepaidRequest: [...PREPAID_TYPES.PrepaidRequest] },
    message: {
      account: 'the payer',
      method: 'POST or GET, as sent',
      path: 'as sent, without the query and without the origin, such as /x402/tts',
      bodyHash:
        'keccak256 of: for a POST, the exact bytes of the body; for a GET, the query in the form that canonicalQuery ' +
        'describes, in UTF-8; to read a balance, the empty string',
      maxAmountMicroUsd: 'the most that may be charged; a higher price is refused. Ignored for balance reads',
      nonce: `1 to ${PREPAID.maxNonceLength} visible ASCII characters, new for each request, such as a random UUID`,
      expiry: `Unix seconds, at most ${PREPAID.signatureTtlSeconds} ahead`,
    },
    headers: {
      [ACCOUNT]: 'account',
      [NONCE]: 'nonce',
      [EXPIRY]: 'expiry, in decimal digits',
      [MAX_AMOUNT]: 'maxAmountMicroUsd, in decimal digits',
      [SIGNATURE]:
        '0x and the 65 bytes r, s, v in hexadecimal, s in the lower half of the order, v 27 or 28 (0 or 1 is also accepted)',
    },
    canonicalQuery: {
      rule:
        'Decode each name and value as a form does (a plus is a space). Sort by name and then by value, in UTF-16 code ' +
        'units of what was decoded. Encode each as encodeURIComponent of JavaScript does: UTF-8, percent-encoded in ' +
        "upper case, all but A-Z a-z 0-9 - _ . ! ~ * ' ( ). Join by = and &; an empty value keeps its =.",
      vectors: [...CANONICAL_QUERY_VECTORS],
    },
    vectors: { ...SIGNING_VECTORS, requests: [...SIGNING_VECTORS.requests] },
  },
  answerHeaders: {
    'x-x402-balance': 'what is left, in micro-USD',
    'x-x402-charged':
      'what this request cost, in micro-USD; 0 if it was refused, or failed and the balance got its money back',
  },
});

const prepaidSteps = [
  'Verify the signed metadata under your pinned key. Take from it payee, chain, domainName, domainVersion and header ' +
    'names, and depositEndpoint and balanceEndpoint.',
  'Check your signer against payment.prepaidX402.authentication.vectors before you deposit.',
  `POST /x402/deposit with {"amountMicroUsd": …}, ${PREPAID.minDepositMicroUsd} to ${PREPAID.maxDepositMicroUsd}; pay ` +
    `the 402 as under directX402, with a payment identifier. Clients of @x402/core refuse more than 1 USD unless ` +
    `setSpendControls allows it. The response waits for ${PREPAID.depositConfirmations} confirmations.`,
  'On 409 PAYMENT_REPLAY_PENDING or PAYMENT_OUTCOME_UNKNOWN, or when the response is lost, repeat the identical deposit ' +
    'with the same payment. It is credited once, even if you never retry; a repeated request returns alreadyCredited.',
  'For each request to /x402/tts: encode the body or query once, hash what you are going to send, choose a nonce, sign, ' +
    'and send the five headers without payment-signature. Quotes can be used, with {"quoteToken": …, "text": …}.',
  'Read the price in x-x402-charged and what is left in x-x402-balance.',
  'To read the balance, GET /x402/accounts/{address} with the five headers, signed over the empty query. The nonce is ' +
    'not spent. 404 means that the address has never deposited.',
  '400 INVALID_REQUEST with details.field x-x402-expiry: correct your clock by the date header and sign again; nothing ' +
    'was charged. Any other 400 names what is missing or malformed.',
  '401 UNAUTHORIZED: the signature is not that of x-x402-account for this method, path, body or query, and domain. ' +
    'Read the metadata again, the payee may have changed; then check your signer.',
  'These count toward the rate limit of your IP address (429): credentials that fail or have expired, accounts that ' +
    'never deposited, deposits that fail before settlement. Valid requests do not count. If many recent syntheses for ' +
    'the wallet failed, the wallet may run only one at a time (429) until some succeed.',
  '402 PAYMENT_REQUIRED, with reason, priceMicroUsd and balanceMicroUsd in the details. If the reason is ' +
    'never_deposited or insufficient_funds, make a deposit; if it is over_max_amount, sign a higher maxAmountMicroUsd. ' +
    'Nothing was charged, and the nonce was not spent.',
  'If no response arrives, repeat the identical request (five headers, URL, body), even after its expiry; it is never ' +
    'charged twice. A new nonce is a new purchase.',
  '409 PREPAID_NONCE_REPLAYED with details.state: the outcome of the first request. pending: repeat it in a second. ' +
    'charged: it cost chargedMicroUsd, and details.audio is a link to the audio, good for 10 minutes. ' +
    'restored: nothing is charged; sign again with a new nonce. Without details.state, another request has spent ' +
    'the nonce: read the balance before you sign with a new one.',
  '502 and 503 with x-x402-charged 0: the synthesis failed and the balance got its money back, but the nonce is used ' +
    'up. Sign again with a new one.',
];
