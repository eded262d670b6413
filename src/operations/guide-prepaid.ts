import { routeOf } from '../contract/routes.ts';
import { PREPAID, prepaidDomainName } from '../x402/prepaid-terms.ts';
import { PREPAID_TYPES } from '../x402/prepaid-types.ts';
import { CANONICAL_QUERY_VECTORS, SIGNING_VECTORS } from '../x402/prepaid-vectors.ts';

/** Operations as `GET /` names them, such as `GET /x402/accounts/:address`. */
export const endpointsOf = (...operationIds: string[]): string[] =>
  operationIds.map(routeOf).map(({ method, path }) => `${method} ${path}`);

interface GuideOptions {
  readonly serviceName: string;
  readonly baseUrl: string;
}

const [ACCOUNT, NONCE, EXPIRY, MAX_AMOUNT, SIGNATURE] = PREPAID.headers;

export const prepaidLimits = {
  minDepositMicroUsd: PREPAID.minDepositMicroUsd,
  maxDepositMicroUsd: PREPAID.maxDepositMicroUsd,
  depositConfirmations: PREPAID.depositConfirmations,
  depositTimeoutSeconds: PREPAID.depositTimeoutSeconds,
  prepaidSignatureLifetimeSeconds: PREPAID.signatureTtlSeconds,
  prepaidNonceMaxLength: PREPAID.maxNonceLength,
};

/** What the prepaid flow is, and how its requests are signed, with vectors to check a signer against. */
export const prepaidPayment = ({ serviceName, baseUrl }: GuideOptions) => ({
  endpoints: endpointsOf('createDeposit', 'getPrepaidAccount', 'createX402Speech', 'getX402Speech', 'getPrepaidAudio'),
  identity:
    "The payer's EVM address. It is public: what permits to spend is the signature of each request. The address must " +
    'have a key of its own (EOA); signatures of smart accounts (EIP-1271) are refused, at the deposit already.',
  price: 'As with direct payment. A request is charged once, or not at all.',
  funding: `POST /x402/deposit: one USDC payment as under directX402, credited once it has ${PREPAID.depositConfirmations} confirmations.`,
  trust: `${baseUrl}${routeOf('getServiceMetadata').path}, verified under a key that was pinned out of band.`,
  refunds: 'None: a deposit can be spent and not be withdrawn. What a failed request was debited is restored.',
  authentication: {
    scheme: 'EIP-712 typed data, secp256k1',
    domain: {
      name: prepaidDomainName(serviceName),
      version: PREPAID.domainVersion,
      chainId: 'prepaid.authentication.chainId of the signed metadata',
      verifyingContract:
        'the address in payment.payees of the signed metadata whose status is current; one that is retiring is ' +
        'honoured until its validUntil',
    },
    primaryType: PREPAID.primaryType,
    types: { PrepaidRequest: [...PREPAID_TYPES.PrepaidRequest] },
    message: {
      account: 'the payer',
      method: 'POST or GET, as sent',
      path: 'as sent, without the query and without the origin, such as /x402/tts',
      bodyHash:
        'keccak256 of the exact bytes of the body of a POST; of the canonical query of a GET, in UTF-8; of nothing to ' +
        'read a balance',
      maxAmountMicroUsd: 'the most that may be charged; a higher price is refused. Not looked at to read a balance',
      nonce: `1 to ${PREPAID.maxNonceLength} visible ASCII characters, new for each request, such as a random UUID`,
      expiry: `Unix seconds, at most ${PREPAID.signatureTtlSeconds} ahead`,
    },
    headers: {
      [ACCOUNT]: 'account',
      [NONCE]: 'nonce',
      [EXPIRY]: 'expiry, in decimal digits',
      [MAX_AMOUNT]: 'maxAmountMicroUsd, in decimal digits',
      [SIGNATURE]:
        '0x and the 65 bytes r, s, v in hexadecimal, s in the lower half of the order, v 27 or 28 (0 or 1 is taken too)',
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
    'x-x402-charged': 'what this request has cost, in micro-USD; 0 when it was refused, or failed and was restored',
  },
});

/** The steps of the prepaid flow, in order. */
export const prepaidSteps = [
  'Verify the signed metadata under your pinned key. Take from it payee, chain, domainName, domainVersion and header ' +
    'names, and depositEndpoint and balanceEndpoint.',
  'Check your signer against payment.prepaidX402.authentication.vectors before you deposit.',
  `POST /x402/deposit with {"amountMicroUsd": …}, ${PREPAID.minDepositMicroUsd} to ${PREPAID.maxDepositMicroUsd}; pay ` +
    `the 402 as under directX402, with a payment identifier. The answer waits for ${PREPAID.depositConfirmations} confirmations.`,
  'On 409 PAYMENT_REPLAY_PENDING or PAYMENT_OUTCOME_UNKNOWN, or when the answer is lost, repeat the identical deposit ' +
    'with the same payment. It is credited once, also without you; a repetition says alreadyCredited.',
  'For each request to /x402/tts: encode the body or query once, hash what you are going to send, choose a nonce, sign, ' +
    'and send the five headers without payment-signature. Quotes can be used, with {"quoteToken": …, "text": …}.',
  'Read the price in x-x402-charged and what is left in x-x402-balance.',
  'To read the balance, GET /x402/accounts/{address} with the five headers, signed over the empty query. The nonce is ' +
    'not spent. 404 means that the address has never deposited.',
  '400 INVALID_REQUEST with details.field x-x402-expiry: correct your clock by the date header and sign again; nothing ' +
    'was charged. Any other 400 names what is missing or malformed.',
  '401 UNAUTHORIZED: the signature is not that of x-x402-account for this method, path, body or query, and domain. ' +
    'Read the metadata again, the payee may have changed; then check your signer.',
  'A credential that fails, by its expiry too, or whose account has never deposited, counts for the rate limit of your ' +
    'IP (429), and so does a deposit that fails before its settlement. Requests that verify are not limited; only when ' +
    'much of what was spoken for the wallet failed lately, it is one at a time (429) until some succeed.',
  '402 PAYMENT_REQUIRED, with priceMicroUsd and balanceMicroUsd in the details: by reason, deposit (never_deposited, ' +
    'insufficient_funds) or sign a higher maxAmountMicroUsd (over_max_amount). The nonce was not spent.',
  'No answer? Repeat the identical request, all five headers, URL and body, also after its expiry: it is never charged ' +
    'twice. A new nonce is a new request, charged anew.',
  '409 PREPAID_NONCE_REPLAYED with details.state: what became of that identical request. pending: repeat it in a second. ' +
    'charged: it cost chargedMicroUsd; when its answer did not arrive, details.audio is a link to the audio, good for 10 ' +
    'minutes. restored: nothing is charged; sign again with a new nonce. Without details.state, another request has spent ' +
    'the nonce, or it was spent before the service was upgraded: read the balance before you sign with a new one.',
  '502 and 503 with x-x402-charged 0: the synthesis failed and the debit was restored, but the nonce stays spent. Sign ' +
    'again with a new one.',
];
