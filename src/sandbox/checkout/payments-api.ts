import type { FastifyInstance } from 'fastify';
import { existingCharge } from './existing.ts';
import { readExpansions } from './expand.ts';
import type { Parameters } from './parameters.ts';
import { chargeOf, presentCharge } from './payment.ts';
import { presentIntentOf } from './payment-intent.ts';
import { type ById, queryOf } from './request.ts';
import type { Store } from './store.ts';

/** Retrieve a payment intent or a charge. */
export function servePayments(app: FastifyInstance, store: Store): void {
  app.get<ById>('/payment_intents/:id', async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(presentIntentOf(store.state, request.params.id), () => store.state);
  });

  app.get<ById>('/charges/:id', async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(presentCharge(existingCharge(store.state, request.params.id)), () => store.state);
  });
}

/** Takes the filters `charge` and `payment_intent`: whether what is about a payment intent was asked for. */
export function readPaymentFilter(parameters: Parameters): (about: { readonly paymentIntent: string }) => boolean {
  const charge = parameters.text('charge', 200);
  const intent = parameters.text('payment_intent', 200);
  return ({ paymentIntent }) =>
    (charge === undefined || charge === chargeOf(paymentIntent)) && (intent === undefined || intent === paymentIntent);
}
