import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type Stripe from 'stripe';
import type { Database } from '../../db/database.ts';
import { findCardAccount, isAccountId } from '../../ledger/accounts.ts';
import { findInstanceId } from '../../ledger/database-identity.ts';
import { testPoint } from '../../lib/test-point.ts';
import { isUuid } from '../../lib/uuid.ts';
import { creditTopUp, OtherModeError, type TopUpCredit } from './credit-top-up.ts';
import { recordSession, type SessionPurchase } from './open-purchases.ts';
import { amountsOf, isSessionId, type Processor } from './processor.ts';
import { idOf, ProcessorError } from './processor-call.ts';

export interface PurchaseRequest {
  readonly amountCents: number;
  readonly accountId: string | undefined;
  readonly challengeId: string | undefined;
}

type StartResult =
  | { readonly outcome: 'open'; readonly checkoutUrl: string }
  | { readonly outcome: 'unknown_account' | 'frozen_account' }
  | { readonly outcome: 'processor_failed'; readonly error: ProcessorError };

type CreditResult =
  | { readonly outcome: 'credited'; readonly credit: TopUpCredit; readonly amountCents: number; readonly id: string }
  | { readonly outcome: 'unpaid'; readonly purchase: SessionPurchase }
  | { readonly outcome: 'foreign_session' };

export type UnpaidStage = 'open' | 'on_its_way' | 'refused' | 'expired';

type CompleteResult =
  | Exclude<CreditResult, { outcome: 'unpaid' }>
  | { readonly outcome: 'unpaid'; readonly stage: UnpaidStage; readonly id: string }
  | { readonly outcome: 'processor_failed'; readonly error: ProcessorError };

type PurchaseOptions = { readonly baseUrl: string; readonly serviceName: string };

/**
 * Buys credit at the hosted checkout, which alone sees card data. A purchase is recorded before the processor is called:
 *
 *     (none) -- start --> opening -- session known --> open -- paid: the buyer returns, or a reconciler --> credited
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

  /**
   * Records the purchase and opens the checkout. A given account must exist and may spend; without one, the id is new
   * (R57), and the first credit creates the account (R15).
   */
  async start(request: PurchaseRequest): Promise<StartResult> {
    const { amountCents, challengeId = null } = request;
    const account = request.accountId ? await findCardAccount(this.#db, request.accountId, this.#processor) : undefined;
    if (request.accountId && !account) return { outcome: 'unknown_account' };
    if (account?.isFrozen) return { outcome: 'frozen_account' };
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
        cancelUrl: `${baseUrl}/top-up?purchase=${topUpId}&canceled=1`,
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

  /** Credits the session once, if the processor says that it is paid and ours (R16). */
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
    if (!session) return { outcome: 'foreign_session' };
    const result = await this.credit(session);
    if (result.outcome !== 'unpaid') return result;
    return { outcome: 'unpaid', stage: await this.#stageOf(session), id: result.purchase.topUpId };
  }

  /** What an earlier purchase was for. It has no account before the first credit creates it. */
  async find(id: string): Promise<PurchaseRequest | undefined> {
    if (!isUuid(id)) return undefined;
    const purchase = await this.#db
      .selectFrom('top_up')
      .select(['account_id', 'amount_cents', 'challenge_id'])
      .where('id', '=', id)
      .executeTakeFirst();
    if (!purchase) return undefined;
    const account = await findCardAccount(this.#db, purchase.account_id, this.#processor);
    return {
      amountCents: purchase.amount_cents,
      accountId: account?.id,
      challengeId: purchase.challenge_id ?? undefined,
    };
  }

  async #stageOf({ status, payment_intent }: Stripe.Checkout.Session): Promise<UnpaidStage> {
    if (status !== 'complete') return status === 'expired' ? 'expired' : 'open';
    const payment = idOf(payment_intent);
    return payment !== null && (await this.#processor.hasPaymentFailed(payment)) ? 'refused' : 'on_its_way';
  }

  /** Records a complete session that is not paid yet: its payment may arrive days later (R16). */
  async follow(purchase: SessionPurchase): Promise<void> {
    await recordSession(this.#db, purchase);
  }

  /** Credits a session read from the processor if it meets every condition of an allow-list (R16, R54). */
  async credit(session: Stripe.Checkout.Session): Promise<CreditResult> {
    const { top_up_id: topUpId = '', account_id: accountId = '', instance_id, challenge_id } = session.metadata ?? {};
    const ours =
      instance_id === (await this.#instance()) &&
      session.livemode === this.#processor.livemode &&
      session.mode === 'payment' &&
      session.currency === 'usd' &&
      isAccountId(topUpId) &&
      isAccountId(accountId);
    if (!ours) return { outcome: 'foreign_session' };
    const { amountCents, taxCents } = amountsOf(session);
    const { id: sessionId, livemode, created } = session;
    const purchase = { topUpId, sessionId, accountId, amountCents, challengeId: challenge_id ?? null };
    if (session.payment_status !== 'paid' || !Number.isSafeInteger(amountCents) || amountCents <= 0 || taxCents < 0) {
      return { outcome: 'unpaid', purchase: { ...purchase, created } };
    }
    const paid = { ...purchase, taxCents, livemode, paymentIntentId: idOf(session.payment_intent) };
    try {
      return { outcome: 'credited', credit: await creditTopUp(this.#db, paid), amountCents, id: topUpId };
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

const LAST_PURCHASES = 20;

/** The last purchases that were credited to an account, the newest first. */
export const lastPurchases = (db: Database, accountId: string) =>
  db
    .selectFrom('top_up')
    .select(['id', 'credited_at as at', 'amount_cents as amountCents'])
    .where('account_id', '=', accountId)
    .where('state', '=', sql.lit('credited'))
    .orderBy('credited_at', 'desc')
    .limit(LAST_PURCHASES)
    .$narrowType<{ at: Date }>()
    .execute();
