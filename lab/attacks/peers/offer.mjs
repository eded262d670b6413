import { HTTPFacilitatorClient, x402ResourceServer } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { declarePaymentIdentifierExtension, PAYMENT_IDENTIFIER } from '@x402/extensions/payment-identifier';
import { keepIn } from './idempotency.mjs';

const NETWORK = 'eip155:8453';
/** As the gateway waits for a settlement; the package's default is 90 seconds. */
const FACILITATOR_TIMEOUT_MS = 30_000;

const speech = {
  accepts: {
    scheme: 'exact',
    price: process.env.PRICE,
    network: NETWORK,
    payTo: process.env.PAY_TO,
    maxTimeoutSeconds: 120,
  },
  description: 'Text to speech',
  mimeType: 'audio/mpeg',
  extensions: { [PAYMENT_IDENTIFIER]: declarePaymentIdentifierExtension(true) },
};

/** What is sold, as the packages' documentation has it. */
export const routes = { 'POST /x402/tts': speech, 'GET /x402/tts': speech, 'POST /x402/other': speech };

export const resourceServer = keepIn(
  new x402ResourceServer(
    new HTTPFacilitatorClient({ url: process.env.FACILITATOR_URL, timeoutMs: FACILITATOR_TIMEOUT_MS }),
  ).register(NETWORK, new ExactEvmScheme()),
);
