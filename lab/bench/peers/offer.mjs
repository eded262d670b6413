import { HTTPFacilitatorClient, x402ResourceServer } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';

const NETWORK = 'eip155:8453';

/** What is sold, as the packages' documentation has it. */
export const routes = {
  'POST /tts': {
    accepts: {
      scheme: 'exact',
      price: process.env.PRICE,
      network: NETWORK,
      payTo: process.env.PAY_TO,
      maxTimeoutSeconds: 120,
    },
    description: 'Text to speech',
    mimeType: 'audio/mpeg',
  },
};

export const resourceServer = new x402ResourceServer(
  new HTTPFacilitatorClient({ url: process.env.FACILITATOR_URL }),
).register(NETWORK, new ExactEvmScheme());
