import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { encodeHeader, makeChallenge, speechResource } from '../../src/x402/challenge.ts';
import { ChallengeTemplate } from '../../src/x402/challenge-template.ts';
import { makeOffer } from '../../src/x402/offer.ts';

const ASSET = {
  network: 'eip155:8453',
  chainId: 8453,
  address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  name: 'USD Coin',
  version: '2',
} as const;
const PAYEE = '0x00000000000000000000000000000000000000a1';

test('R27: a challenge that is written from its template is the one that is made for the amount', async () => {
  const anything = fc.record({
    serviceName: fc.string({ unit: 'grapheme' }),
    amount: fc.bigInt({ min: 1n, max: 10n ** 12n }),
  });
  fc.assert(
    fc.property(anything, ({ serviceName, amount }) => {
      const resource = speechResource('https://speech.example', serviceName, 'POST');
      const make = (digits: string) =>
        makeChallenge(resource, { ...makeOffer(ASSET, 1n, PAYEE), amount: digits }, 'unpaid');
      const enclose = (challenge: object) => ({ error: { details: challenge }, ...challenge });
      const { header, body } = new ChallengeTemplate(make, enclose).write(String(amount));
      assert.equal(header, encodeHeader(make(String(amount))));
      assert.equal(body, JSON.stringify(enclose(make(String(amount)))));
    }),
    { numRuns: 300 },
  );
});
