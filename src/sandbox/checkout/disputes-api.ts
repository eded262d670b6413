import type { FastifyInstance } from 'fastify';
import { type Dispute, presentDispute } from './dispute.ts';
import { existing } from './existing.ts';
import { readExpansions } from './expand.ts';
import { listOf, readPage } from './list.ts';
import { readPaymentFilter } from './payments-api.ts';
import { type ById, queryOf } from './request.ts';
import type { Store } from './store.ts';

const DISPUTES = '/disputes';

/** Retrieve and list disputes. */
export function serveDisputes(app: FastifyInstance, store: Store): void {
  const show = (dispute: Dispute) => presentDispute(dispute, store.state.transactions);

  app.get<ById>(`${DISPUTES}/:id`, async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(show(existing(store.state, 'disputes', request.params.id)), () => store.state);
  });

  app.get(DISPUTES, async (request) => {
    const parameters = queryOf(request);
    const page = readPage(parameters);
    const matches = readPaymentFilter(parameters);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(listOf(store.state.disputes, page, DISPUTES, { matches, show }), () => store.state);
  });
}
