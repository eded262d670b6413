import assert from 'node:assert/strict';
import Fastify from 'fastify';
import { test } from 'tap';
import { type Route, routes } from '../../src/contract/routes.ts';
import { Admission, type AdmissionParts } from '../../src/http/admission.ts';
import { EdgeLimiter } from '../../src/http/edge-limiter.ts';

type Terms = Route['admission'];

const CREDENTIAL = { 'x-x402-signature': '0x' };
const UNLESS_VERIFIED: Terms = { edge: 'unless-verified', credential: 'x-x402-signature' };

/** An edge that admits one request a minute to an operation on these terms, and tells what came of each. */
async function startEdge<T>(terms: Terms, serve: (admission: Admission) => Promise<T>) {
  const app = Fastify();
  const parts = { limiter: await EdgeLimiter.on(app, 1), metrics: { rateLimitRefused() {} } };
  const contract = { ...(routes[0] as Route), admission: terms };
  app.get('/', { config: { contract } }, async (request, reply) => {
    const admitted = await Admission.enter(parts as unknown as AdmissionParts, request, reply);
    if (!(admitted instanceof Admission)) return { refused: admitted.body.error.details?.scope };
    try {
      return { served: await serve(admitted) };
    } catch (error) {
      return { failed: (error as Error).message };
    }
  });
  return async (headers = {}) => (await app.inject({ url: '/', headers })).json();
}

const proves = (proof: () => Promise<boolean>) => async (admission: Admission) =>
  (await admission.prove(proof)) ? 'refused' : 'admitted';

test('a credential is asked for beyond the limit of the edge only, and only where the contract says so', async () => {
  let asked = 0;
  const verified = proves(async () => {
    asked += 1;
    return true;
  });
  const send = await startEdge(UNLESS_VERIFIED, verified);
  assert.deepEqual([await send(CREDENTIAL), asked], [{ served: 'admitted' }, 0]);
  assert.deepEqual([await send(CREDENTIAL), asked], [{ served: 'admitted' }, 1]);
  assert.deepEqual([await send(), asked], [{ refused: 'edge' }, 1]);
  const always = await startEdge({ edge: 'always' }, verified);
  assert.deepEqual([await always(CREDENTIAL), await always(CREDENTIAL)], [{ served: 'admitted' }, { refused: 'edge' }]);
  assert.equal(asked, 1);
});

test('a credential that can not be judged now is not held against its client, one that failed is', async () => {
  let proof = async (): Promise<boolean> => {
    throw new Error('the database is away');
  };
  const send = await startEdge(UNLESS_VERIFIED, (admission) => proves(proof)(admission));
  assert.deepEqual(await send(CREDENTIAL), { served: 'admitted' });
  for (let count = 0; count < 10; count += 1) {
    assert.deepEqual(await send(CREDENTIAL), { failed: 'the database is away' });
  }
  proof = async () => false;
  assert.deepEqual(await send(CREDENTIAL), { served: 'refused' });
  proof = async () => true;
  assert.deepEqual(await send(CREDENTIAL), { refused: 'edge' });
});

test('a request whose credential verified is not counted, where the contract says so', async () => {
  const verify = async (admission: Admission) => admission.credentialVerified();
  const spared = await startEdge(UNLESS_VERIFIED, verify);
  assert.deepEqual([await spared(), await spared(), await spared()], [{}, {}, {}]);
  const counted = await startEdge({ edge: 'always' }, verify);
  assert.deepEqual([await counted(), await counted()], [{}, { refused: 'edge' }]);
});

test('an operation takes no slot that the contract does not name', async () => {
  for (const [terms, take, reason] of [
    [{ edge: 'always' }, (admission) => admission.take('request'), 'request'],
    [{ edge: 'always', window: { by: 'ip', when: ['payment'] } }, (admission) => admission.take('request'), 'request'],
    [
      { edge: 'always', window: { by: 'ip', when: ['payment'] } },
      (admission) => admission.credentialFailed(),
      'failed-credential',
    ],
    [{ edge: 'always', window: { by: 'ip', when: ['request'] } }, (admission) => admission.attempt(), 'failed-payment'],
  ] as [Terms, (admission: Admission) => Promise<unknown>, string][]) {
    const send = await startEdge(terms, take);
    assert.deepEqual(await send(), { failed: `x-admission does not say that a ${reason} takes a slot` });
  }
});
