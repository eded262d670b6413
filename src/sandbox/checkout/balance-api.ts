import type { FastifyInstance } from 'fastify';
import { type BalanceTransaction, presentTransaction } from './balance-transaction.ts';
import { existing } from './existing.ts';
import { readExpansions } from './expand.ts';
import { listOf, readPage } from './list.ts';
import { type ById, queryOf } from './request.ts';
import type { Store } from './store.ts';

const TRANSACTIONS = '/balance_transactions';
const ACCOUNT = 'acct_sandbox';

/** Retrieve the balance, its transactions, and whose account it is. */
export function serveBalance(app: FastifyInstance, store: Store): void {
  app.get<ById>(`${TRANSACTIONS}/:id`, async (request) => {
    const parameters = queryOf(request);
    const expand = readExpansions(parameters);
    parameters.end();
    return expand(presentTransaction(existing(store.state, 'transactions', request.params.id)), () => store.state);
  });

  app.get(TRANSACTIONS, async (request) => {
    const parameters = queryOf(request);
    const page = readPage(parameters);
    const type = parameters.text('type', 100);
    const source = parameters.text('source', 200);
    const currency = parameters.text('currency', 10)?.toLowerCase();
    const expand = readExpansions(parameters);
    parameters.end();
    const matches = (transaction: BalanceTransaction) =>
      (type === undefined || transaction.type === type) &&
      (source === undefined || transaction.source === source) &&
      (currency === undefined || transaction.currency === currency);
    const list = listOf(store.state.transactions, page, TRANSACTIONS, { matches, show: presentTransaction });
    return expand(list, () => store.state);
  });

  app.get('/balance', async (request) => {
    queryOf(request).end();
    const sums = new Map<string, number>();
    for (const { currency, amount } of store.state.transactions.values()) {
      sums.set(currency, (sums.get(currency) ?? 0) + amount);
    }
    const available = [...sums].map(([currency, amount]) => ({ amount, currency, source_types: { card: amount } }));
    const pending = available.map((sum) => ({ ...sum, amount: 0, source_types: { card: 0 } }));
    return { object: 'balance', available, livemode: false, pending };
  });

  app.get('/account', async (request) => {
    queryOf(request).end();
    return {
      id: ACCOUNT,
      object: 'account',
      charges_enabled: true,
      country: 'US',
      default_currency: 'usd',
      details_submitted: true,
      email: null,
      metadata: {},
      payouts_enabled: true,
      type: 'standard',
    };
  });
}
