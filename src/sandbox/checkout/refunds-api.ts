import type { FastifyInstance } from 'fastify';
import { ApiError, invalidParameter } from './api-error.ts';
import { existing, existingCharge } from './existing.ts';
import { readExpansions } from './expand.ts';
import { once } from './idempotency.ts';
import { listOf, readPage } from './list.ts';
import type { Parameters } from './parameters.ts';
import { chargeOf, type Payment } from './payment.ts';
import { readPaymentFilter } from './payments-api.ts';
import { makeRefund, presentRefund, REFUND_REASONS } from './refund.ts';
import { type ById, bodyOf, queryOf } from './request.ts';
import { type State, type Store, withChange } from './store.ts';

const REFUNDS = '/refunds';

/** Create, retrieve and list refunds. */
export function serveRefunds(app: FastifyInstance, store: Store): void {
  app.post(REFUNDS, async (request, reply) =>
    reply.send(
      await once(store, request, (state) => {
        const parameters = bodyOf(request);
        const expand = readExpansions(parameters);
        const payment = readPayment(state, parameters);
        const amount = parameters.integer('amount', 1, Number.MAX_SAFE_INTEGER);
        const reason = parameters.choice('reason', REFUND_REASONS);
        const metadata = parameters.metadata('metadata');
        parameters.end();
        const { change, refund } = makeRefund(state, payment, { amount, reason, metadata });
        return { change, result: expand(presentRefund(refund), () => withChange(state, change)) };
      }),
    ),
  );

  app.get<ById>(`${REFUNDS}/:id`, async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(presentRefund(existing(store.state, 'refunds', request.params.id)), () => store.state);
  });

  app.get(REFUNDS, async (request) => {
    const parameters = queryOf(request);
    const page = readPage(parameters);
    const matches = readPaymentFilter(parameters);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(listOf(store.state.refunds, page, REFUNDS, { matches, show: presentRefund }), () => store.state);
  });
}

function readPayment(state: State, parameters: Parameters): Payment {
  const charge = parameters.text('charge', 200);
  const intent = parameters.text('payment_intent', 200);
  if (charge !== undefined && intent !== undefined && chargeOf(intent) !== charge) {
    throw invalidParameter('charge', 'parameter_invalid', 'The charge is not of that payment_intent.');
  }
  if (intent !== undefined) return existing(state, 'payments', intent, 'payment_intent');
  if (charge !== undefined) return existingCharge(state, charge, 'charge');
  throw new ApiError(
    400,
    'invalid_request_error',
    'One of the following params should be provided for this request: payment_intent or charge.',
    { code: 'parameter_missing' },
  );
}
