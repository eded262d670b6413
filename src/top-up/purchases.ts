import { randomUUID } from 'node:crypto';
import type Stripe from 'stripe';
import type { Database } from '../db/database.ts';
import { findCardAccount, isAccountId } from '../ledger/accounts.ts';
import { findInstanceId } from '../ledger/instance.ts';
import { testPoint } from '../lib/test-point.ts';
import { creditTopUp, OtherModeError, type TopUpCredit } from './credit-top-up.ts';
import { isSessionId, type Processor } from './processor.ts';
import { idOf, ProcessorError } from './processor-call.ts';

export interface PurchaseRequest {
  readonly amountCents: number;
  /** The account to top up; undefined for a new one. */
  readonly accountId: string | undefined;
  readonly challengeId: string | undefined;
}

export type StartResult =
  | { readonly outcome: 'open'; readonly checkoutUrl: string }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'processor_failed'; readonly error: ProcessorError };

export type CompleteResult =
  | { readonly outcome: 'credited'; readonly credit: TopUpCredit; readonly amountCents: number }
  | { readonly outcome: 'unpaid' }
  | { readonly outcome: 'foreign_session' }
  | { readonly outcome: 'processor_failed'; readonly error: ProcessorError };

export interface PurchaseOptions {
  readonly baseUrl: string;
  readonly serviceName: string;
}

/**
 * Buying credit on the hosted checkout. A purchase is recorded before the processor is called:
 *
 *     (none) -- start --> opening -- session known --> open -- paid, seen by whoever comes first --> credited
 */
export class Purchases {
  readonly #db: Database;
  readonly #processor: Processor;
  readonly #options: PurchaseOptions;
  #instanceId: string | undefined;

  constructor(db: Database, processor: Processor, options: PurchaseOptions) {
    this.#db = db;
    this.#processor = processor;
    this.#options = options;
  }

  /** Records the purchase and opens the checkout; an account that is named must exist (R15). */
  async start(request: PurchaseRequest): Promise<StartResult> {
    const { amountCents, challengeId = null } = request;
    const account = request.accountId && (await findCardAccount(this.#db, request.accountId, this.#processor));
    if (request.accountId && !account) return { outcome: 'unknown_account' };
    const accountId = account ? account.id : randomUUID();
    const instanceId = await this.#instance();
    const { id: topUpId } = await this.#db
      .insertInto('top_up')
      .values({ account_id: accountId, amount_cents: amountCents, challenge_id: challengeId })
      .returning('id')
      .executeTakeFirstOrThrow();
    testPoint('purchase recorded');
    const { baseUrl, serviceName } = this.#options;
    try {
      const { sessionId, url } = await this.#processor.openCheckout({
        topUpId,
        accountId,
        challengeId,
        instanceId,
        amountCents,
        productName: `${serviceName} credit`,
        successUrl: `${baseUrl}/top-up/complete?session_id={CHECKOUT_SESSION_ID}`,
        cancelUrl: `${baseUrl}/top-up?${new URLSearchParams({
          amount: String(amountCents),
          ...(account && { account: account.id }),
          ...(challengeId !== null && { challenge: challengeId }),
          canceled: '1',
        })}`,
      });
      testPoint('checkout opened');
      await this.#db
        .updateTable('top_up')
        .set({ state: 'open', session_id: sessionId })
        .where('id', '=', topUpId)
        .where('state', '=', 'opening')
        .execute();
      testPoint('purchase open');
      return { outcome: 'open', checkoutUrl: url };
    } catch (error) {
      if (error instanceof ProcessorError) return { outcome: 'processor_failed', error };
      throw error;
    }
  }

  /** Credits the session if the processor says that it is paid and ours; it is credited once, whoever asks (R16). */
  async complete(sessionId: string): Promise<CompleteResult> {
    if (!isSessionId(sessionId)) return { outcome: 'foreign_session' };
    let session: Stripe.Checkout.Session | undefined;
    try {
      session = await this.#processor.findSession(sessionId);
    } catch (error) {
      if (error instanceof ProcessorError) return { outcome: 'processor_failed', error };
      throw error;
    }
    testPoint('session read');
    return session ? this.credit(session) : { outcome: 'foreign_session' };
  }

  /** Credits a session that was read from the processor, on an allow-list of what it must be (R16, R54). */
  async credit(session: Stripe.Checkout.Session): Promise<CompleteResult> {
    const { top_up_id: topUpId = '', account_id: accountId = '', instance_id, challenge_id } = session.metadata ?? {};
    const ours =
      instance_id === (await this.#instance()) &&
      session.livemode === this.#processor.livemode &&
      session.mode === 'payment' &&
      session.currency === 'usd' &&
      isAccountId(topUpId) &&
      isAccountId(accountId);
    if (!ours) return { outcome: 'foreign_session' };
    const amountCents = session.amount_total;
    if (session.payment_status !== 'paid' || !Number.isSafeInteger(amountCents) || !amountCents || amountCents < 0) {
      return { outcome: 'unpaid' };
    }
    const { id: sessionId, livemode } = session;
    const paid = {
      ...{ topUpId, sessionId, accountId, livemode, amountCents, challengeId: challenge_id ?? null },
      paymentIntentId: idOf(session.payment_intent),
    };
    try {
      return { outcome: 'credited', credit: await creditTopUp(this.#db, paid), amountCents };
    } catch (error) {
      if (error instanceof OtherModeError) return { outcome: 'foreign_session' };
      throw error;
    }
  }

  async #instance(): Promise<string> {
    this.#instanceId ??= await findInstanceId(this.#db);
    return this.#instanceId;
  }
}
