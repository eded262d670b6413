import type { TopUpOperations } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import { isDatabaseFault } from '../db/database-errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { pageContentSecurityPolicy, renderErrorPage } from '../pages/page.ts';
import { OWN_AMOUNT, topUpAmount, typedAmount } from '../top-up/amount.ts';
import { launcherPage, unknownAccountPage } from '../top-up/launcher.ts';
import type { Purchases } from '../top-up/purchases.ts';
import * as pages from '../top-up/top-up-pages.ts';
import { creditAccountBody } from './credit-account.ts';
import { PAUSE_RETRY_SECONDS, type Pauses, pausedAnswer } from './paused.ts';

/** Of the persistent window that purchases of one address are counted in: each costs a row and a session. */
export const TOP_UP_WINDOW_SECONDS = 60;

export interface TopUpOptions {
  readonly baseUrl: string;
  readonly serviceName: string;
  /** Undefined while payment by card is off (R47). */
  readonly card:
    | {
        readonly purchases: Purchases;
        readonly checkoutOrigin: string;
        readonly maxCents: number;
      }
    | undefined;
  /** That accounts are shown of; undefined for those of either mode. */
  readonly livemode: boolean | undefined;
  readonly pauses: Pauses;
}

const OFF = 'Payment by card is not set up here.';
const PAUSED = { 'retry-after': PAUSE_RETRY_SECONDS };

/** Buying credit: the launcher, the way to the hosted checkout and back. */
export function topUpOperations(
  db: Database,
  { baseUrl, serviceName, card, livemode, pauses }: TopUpOptions,
): TopUpOperations<OperationContext> {
  const headers = { 'content-security-policy': pageContentSecurityPolicy(card ? [card.checkoutOrigin] : []) };
  const privatePage = { ...headers, 'cache-control': PRIVATE };

  /** Whether it is certain that there is no such account; while the database is away, paying finds out. */
  const isUnknown = async (account: string, log: OperationContext['log']): Promise<boolean> => {
    try {
      return (await findCardAccount(db, account, { livemode })) === undefined;
    } catch (err) {
      if (!isDatabaseFault(err)) throw err;
      log.warn({ err }, 'an account could not be looked up for the launcher');
      return false;
    }
  };

  return {
    showTopUp: async ({ query }, { log }) => {
      if (!card) return { status: 200, headers, body: pages.cardPaymentOffPage() };
      if (pauses.has('top-up')) return { status: 503, headers: PAUSED, body: pages.pausedPage() };
      const { maxCents } = card;
      const purchase = {
        amountCents: topUpAmount(query.amount, maxCents),
        account: query.account?.trim() || undefined,
        challenge: query.challenge?.trim() || undefined,
      };
      if (purchase.account !== undefined && (await isUnknown(purchase.account, log))) {
        return { status: 200, headers: privatePage, body: unknownAccountPage(purchase) };
      }
      const isCanceled = Boolean(query.canceled?.trim());
      return {
        status: 200,
        headers: privatePage,
        body: launcherPage(purchase, { serviceName, maxCents, isCanceled }),
      };
    },

    startTopUp: async ({ body = {} }, context) => {
      if (!card) return failure('CONFIG_ERROR', OFF, { setting: 'STRIPE_SECRET_KEY' });
      const { maxCents } = card;
      const asked = {
        amountCents: topUpAmount(body.amount, maxCents),
        account: body.accountId?.trim() || undefined,
        challenge: body.challengeId?.trim() || undefined,
      };
      const typed = body.amount === OWN_AMOUNT ? body.ownAmount : undefined;
      const own = typed === undefined ? undefined : typedAmount(typed, maxCents);
      if (own?.outcome === 'refused') {
        const { rule, message } = own;
        if (!context.prefersHtml()) return failure('INVALID_REQUEST', message, { field: 'ownAmount', rule });
        const page = launcherPage(asked, { serviceName, maxCents, refused: { typed: typed ?? '', message } });
        return { status: 400, headers: privatePage, type: 'text/html', body: page };
      }
      if (pauses.has('top-up')) {
        return context.prefersHtml()
          ? { status: 503, headers: PAUSED, type: 'text/html', body: pages.pausedPage() }
          : pausedAnswer('top-up');
      }
      const limited = await context.admission.take('request');
      if (limited && context.prefersHtml()) {
        const { status, headers } = limited;
        return { status, headers, type: 'text/html', body: pages.tooManyPage(headers['retry-after']) };
      }
      if (limited) return limited;
      const purchase = { ...asked, amountCents: own?.cents ?? asked.amountCents };
      const result = await card.purchases.start({
        amountCents: purchase.amountCents,
        accountId: purchase.account,
        challengeId: purchase.challenge,
      });
      switch (result.outcome) {
        case 'open':
          return { status: 303, headers: { location: result.checkoutUrl } };
        case 'unknown_account': {
          if (context.prefersHtml()) {
            return { status: 400, headers: privatePage, type: 'text/html', body: unknownAccountPage(purchase) };
          }
          const message = 'accountId names no existing account. Leave it empty to make a new one.';
          return failure('INVALID_REQUEST', message, { field: 'accountId', rule: 'exists' });
        }
        case 'processor_failed':
          context.log.error({ err: result.error }, 'no checkout could be opened');
          return failure(
            'PAYMENT_ERROR',
            'The card processor did not open a checkout. Nothing was charged; try again.',
          );
      }
    },

    completeTopUp: async ({ query }, context) => {
      if (!query.session_id) {
        return { status: 400, body: renderErrorPage('The address lacks session_id. Return here from the checkout.') };
      }
      if (!card) return { status: 503, body: renderErrorPage(OFF) };
      const result = await card.purchases.complete(query.session_id).catch((err) => {
        context.log.error({ err }, 'a purchase could not be looked at');
        return { outcome: 'not_now', isOutage: isDatabaseFault(err) } as const;
      });
      switch (result.outcome) {
        case 'credited':
          return {
            status: 200,
            headers: { 'cache-control': PRIVATE },
            body: pages.creditedPage(baseUrl, result.credit, result.amountCents),
          };
        case 'unpaid':
          return {
            status: 402,
            headers: { 'cache-control': PRIVATE },
            body: pages.unpaidPage(result.stage, result.request),
          };
        case 'foreign_session':
          return { status: 502, body: pages.foreignSessionPage() };
        case 'processor_failed':
          context.log.error({ err: result.error }, 'a checkout session could not be read');
          return { status: 502, body: pages.notNowPage('The card processor does not answer') };
        case 'not_now':
          return { status: result.isOutage ? 503 : 500, body: pages.notNowPage('Not credited yet') };
      }
    },

    getTopUpStatus: async ({ query }) => {
      const account = await findCardAccount(db, query.account.trim(), { livemode });
      if (!account) {
        const body = creditAccountBody({ id: query.account, balanceMicroUsd: 0n });
        return { status: 404, headers: { 'cache-control': PRIVATE }, body: { ...body, status: 'not_found' } };
      }
      return {
        status: 200,
        headers: { 'cache-control': PRIVATE },
        body: {
          ...creditAccountBody(account),
          status: 'active',
          links: { credits: `${baseUrl}/credits/${account.id}` },
        },
      };
    },
  };
}
