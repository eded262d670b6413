import type { RunningCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import {
  type DisputeRequest,
  openDispute,
  type RefundRequest,
  refund,
  settleRefund,
  updateDispute,
} from '../../src/sandbox/checkout/clawbacks.ts';
import type { Dispute, RefundStatus } from '../../src/sandbox/checkout/objects.ts';
import { endBankPayment } from '../../src/sandbox/checkout/sessions.ts';

/** What the processor's staff and the buyers' banks do. Each rejects with ApiError where the processor would refuse it. */
export const operationsOn = ({ store }: RunningCheckout) => ({
  refund: async (request: RefundRequest) => refund(store, request),
  settleRefund: async (id: string, status: RefundStatus) => settleRefund(store, id, status),
  openDispute: async (request: DisputeRequest) => openDispute(store, request),
  updateDispute: async (id: string, status: Dispute['status']) => updateDispute(store, id, status),
  endBankPayment: async (session: string, end: 'arrived' | 'refused') => endBankPayment(store, session, end),
});

export type Operations = ReturnType<typeof operationsOn>;
