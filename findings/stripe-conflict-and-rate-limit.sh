#!/usr/bin/env bash
# stripe 23.1.0: a key whose first request still runs (409) is a StripeAPIError, and 429 is never repeated.
#
# The body of both says `idempotency_error`, but only 400 (the key was used with other parameters) becomes a
# StripeIdempotencyError. A handler that looks for that class takes 409 for an ordinary failure, although the first request
# may yet succeed. 409 is repeated by the library itself, 429 is not, whatever maxNetworkRetries and Retry-After say.
# Stripe is played by a local server that answers in its documented form (https://docs.stripe.com/api/errors).
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund stripe@23.1.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import Stripe from 'stripe';

const bodies = {
  400: { type: 'idempotency_error', message: 'Keys can only be used with the same parameters.' },
  409: { type: 'idempotency_error', code: 'idempotency_key_in_use', message: 'There is another request in progress.' },
  429: { type: 'invalid_request_error', code: 'rate_limit', message: 'Too many requests.' },
};
let status;
let requests = 0;
const server = createServer((request, response) => {
  requests += 1;
  request.resume().on('end', () => {
    response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '1' });
    response.end(JSON.stringify({ error: bodies[status] }));
  });
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address();
const stripe = new Stripe('sk_test_example', { host: '127.0.0.1', port, protocol: 'http', maxNetworkRetries: 2 });

const seen = {};
for (status of [400, 409, 429]) {
  requests = 0;
  const error = await stripe.refunds.create({ payment_intent: 'pi_1' }, { idempotencyKey: 'key-1' }).catch((e) => e);
  seen[status] = `${error.type}, ${requests} request(s)`;
}
server.close();
console.log(seen);
assert.deepEqual(seen, {
  400: 'StripeIdempotencyError, 1 request(s)',
  409: 'StripeAPIError, 3 request(s)',
  429: 'StripeRateLimitError, 1 request(s)',
});
JS
node run.mjs
