import assert from 'node:assert/strict';
import { PaymentRequiredV2Schema } from '@x402/core/schemas';
import {
  sanitizeResourceServiceMetadata,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
} from '@x402/extensions/bazaar';
import { declarePaymentIdentifierExtension } from '@x402/extensions/payment-identifier';
import { test } from 'tap';
import { depositResource, encodeHeader, makeChallenge, speechResource } from '../../src/x402/challenge.ts';
import { makeOffer } from '../../src/x402/offer.ts';

const asset = {
  network: 'eip155:8453',
  chainId: 8453,
  address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  name: 'USD Coin',
  version: '2',
} as const;
const PAYEE = '0xcA11bde05977b3631167028862bE2a173976CA11';

const SERVICE = ['https://speech.example', 'speechgate'] as const;

for (const [name, resource, path] of [
  ['GET /x402/tts', speechResource(...SERVICE, 'GET'), '/x402/tts'],
  ['POST /x402/tts', speechResource(...SERVICE, 'POST'), '/x402/tts'],
  ['POST /x402/deposit', depositResource(...SERVICE), '/x402/deposit'],
] as const) {
  const challenge = makeChallenge(resource, makeOffer(asset, 198n, PAYEE), 'payment_required');

  test(`R27: the challenge of ${name} is x402 version 2, with its exact amount in atomic units`, async () => {
    assert.deepEqual(PaymentRequiredV2Schema.parse(challenge), challenge);
    assert.equal(challenge.resource.url, `https://speech.example${path}`);
    assert.deepEqual(challenge.accepts, [
      {
        scheme: 'exact',
        network: 'eip155:8453',
        amount: '198',
        asset: asset.address,
        payTo: PAYEE,
        maxTimeoutSeconds: 120,
        extra: { name: 'USD Coin', version: '2' },
      },
    ]);
    assert.deepEqual(JSON.parse(Buffer.from(encodeHeader(challenge), 'base64').toString()), challenge);
  });

  test(`R27: the extensions of ${name} are valid by the official validators`, async () => {
    const { bazaar, 'payment-identifier': identifier } = challenge.extensions;
    assert.deepEqual(validateDiscoveryExtension(bazaar as never), { valid: true });
    assert.deepEqual(validateDiscoveryExtensionSpec(bazaar as never), { valid: true });
    assert.deepEqual(identifier, declarePaymentIdentifierExtension(true));
    const { serviceName, tags } = challenge.resource;
    assert.deepEqual(sanitizeResourceServiceMetadata({ url: challenge.resource.url, serviceName, tags: [...tags] }), {
      serviceName,
      tags,
    });
  });
}
