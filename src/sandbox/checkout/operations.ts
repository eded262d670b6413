import { type Dispute, type DisputeParts, type DisputeStatus, openDispute, updateDispute } from './dispute.ts';
import { existing } from './existing.ts';
import { endBankPayment, type Payment } from './payment.ts';
import { makeRefund, type Refund, type RefundParts, type RefundStatus, settleRefund } from './refund.ts';
import type { State, Store } from './store.ts';

interface OfSession {
  /** Id of a paid checkout session. */
  readonly session: string;
  /** In the currency's minor unit. */
  readonly amountCents?: number;
}

/**
 * What the processor's dashboard and the buyers' banks do with a purchase. Each is on disk when it returns, and throws
 * ApiError where the processor would refuse it.
 */
export interface Operations {
  /** By default all that is left, succeeded at once. */
  refund(wanted: OfSession & Pick<RefundParts, 'status' | 'reason'>): Promise<Refund>;
  /** Lets a refund come out later: failed and canceled are final, and give its amount back to the merchant. */
  settleRefund(id: string, status: RefundStatus): Promise<Refund>;
  /** Lets a payment from a bank account arrive, or be refused. @param session its id */
  endBankPayment(session: string, end: 'arrived' | 'refused'): Promise<void>;
  /** By default of the whole charge, with the status needs_response. */
  openDispute(wanted: OfSession & Pick<DisputeParts, 'status'>): Promise<Dispute>;
  /** Any status may follow any: the balance follows it. */
  updateDispute(id: string, status: DisputeStatus): Promise<Dispute>;
}

export function operationsOn(store: Store): Operations {
  return {
    refund: ({ session, amountCents: amount, status, reason }) =>
      store.update((state) => {
        const { change, refund } = makeRefund(state, paymentOf(state, session), { amount, status, reason });
        return { change, result: refund };
      }),
    settleRefund: (id, status) =>
      store.update((state) => {
        const { change, refund } = settleRefund(state, id, status);
        return { change, result: refund };
      }),
    endBankPayment: (session, end) =>
      store.update((state) => ({
        change: endBankPayment(existing(state, 'sessions', session, 'session'), end),
        result: undefined,
      })),
    openDispute: ({ session, amountCents: amount, status }) =>
      store.update((state) => {
        const { change, dispute } = openDispute(paymentOf(state, session), { amount, status });
        return { change, result: dispute };
      }),
    updateDispute: (id, status) =>
      store.update((state) => {
        const { change, dispute } = updateDispute(state, id, status);
        return { change, result: dispute };
      }),
  };
}

function paymentOf(state: State, session: string): Payment {
  const { paymentIntent } = existing(state, 'sessions', session, 'session');
  return existing(state, 'payments', String(paymentIntent), 'payment_intent');
}
