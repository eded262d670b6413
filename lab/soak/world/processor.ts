import { isTakenAt, stripeAt } from '../../../test/support/checkout.ts';
import { until } from '../../../test/support/until.ts';
import type { Processor } from './world.ts';

const PAGE = 100;
/** How long the checkout may be unavailable during a payment. */
const TIMEOUT_MS = 300_000;

/** The checkout without faults, as buyers, merchant and banks use it. */
export function processorAt(origin: string, operationsUrl: string, secretKey: string): Processor {
  const stripe = stripeAt(origin, secretKey);

  const operate = async (name: string, ...given: unknown[]): Promise<never> => {
    const answer = await fetch(`${operationsUrl}/${name}`, { method: 'POST', body: JSON.stringify(given) });
    const result = (await answer.json()) as { message?: string };
    if (!answer.ok) throw new Error(`${name}: ${result.message}`);
    return result as never;
  };
  return {
    refund: (wanted) => operate('refund', wanted),
    settleRefund: (id, status) => operate('settleRefund', id, status),
    openDispute: (wanted) => operate('openDispute', wanted),
    updateDispute: (id, status) => operate('updateDispute', id, status),
    pay: async (checkoutUrl) => {
      const buyer = { method: 'POST', body: 'card=accepted', redirect: 'manual' } as const;
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      let back: string | null = null;
      await until(async () => {
        const answer = await fetch(checkoutUrl, { ...buyer, headers }).catch(() => undefined);
        back = answer?.headers.get('location') ?? null;
        return back !== null;
      }, TIMEOUT_MS);
      return back ?? '';
    },
    sessions: async () => {
      const takenBack = new Map<string, number>();
      for (const list of [stripe.refunds.list({ limit: PAGE }), stripe.disputes.list({ limit: PAGE })]) {
        for await (const { payment_intent: intent, status, amount } of list) {
          if (!isTakenAt(status)) continue;
          takenBack.set(String(intent), (takenBack.get(String(intent)) ?? 0) + amount);
        }
      }
      const sessions = [];
      for await (const session of stripe.checkout.sessions.list({ limit: PAGE })) {
        sessions.push({
          id: session.id,
          isPaid: session.payment_status === 'paid',
          amountCents: session.amount_total ?? 0,
          takenBackCents: takenBack.get(String(session.payment_intent)) ?? 0,
        });
      }
      return sessions;
    },
  };
}
