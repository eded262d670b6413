import type { TopUpOperations } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { isDatabaseFault } from '../../db/database-errors.ts';
import { findCardAccount } from '../../ledger/accounts.ts';
import { OWN_AMOUNT, topUpAmount, typedAmount } from '../../payments/top-up/amount.ts';
import type { Purchases } from '../../payments/top-up/purchases.ts';
import { CARD_OFF } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { pageResponse as page, pageContentSecurityPolicy, renderErrorPage, type Site } from '../pages/page.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure } from '../structured-error.ts';
import { creditAccountBody } from './credits-operations.ts';
import { PAUSE_RETRY_SECONDS, type Pauses, pausedAnswer } from './flows.ts';
import * as pages from './top-up-pages.ts';
import { launcherPage, type RefusedAccount } from './top-up-pages.ts';

/** The window is kept in the database, because each purchase costs a row and a session. */
export const TOP_UP_WINDOW_SECONDS = 60;

export interface TopUpOptions {
  readonly baseUrl: string;
  readonly site: Site;
  /** Of the default model, 10^-12 USD per character. */
  readonly ratePicoUsd: bigint;
  readonly card: { purchases: Purchases; checkoutOrigin: string; maxCents: number } | undefined;
  readonly livemode: boolean | undefined;
  readonly pauses: Pauses;
}

const REFUSED_ACCOUNT = {
  unknown_account: {
    message: 'accountId does not exist. Leave it empty to create a new account. You were not charged.',
    rule: 'exists',
  },
  frozen_account: {
    message:
      'The operator has frozen this account, so its credit could not be spent. Contact the operator. You were not charged.',
    rule: 'not frozen',
  },
};
const CARD_OFF_SINCE =
  'Payment by card is not set up here now. If you have paid, ask the operator for your credit; do not pay again.';
const UNKNOWN_PURCHASE = 'purchaseId does not exist. Open /top-up without it. You were not charged.';
const PURCHASE_EXISTS = { field: 'purchaseId', rule: 'exists' } as const;
const PRIVATE_ANSWER = { 'cache-control': PRIVATE_CACHE };

const pausedPage = () => page(503, { 'retry-after': PAUSE_RETRY_SECONDS }, pages.pausedPage());

export function topUpOperations(
  db: Database,
  { baseUrl, site, ratePicoUsd, card, livemode, pauses }: TopUpOptions,
): TopUpOperations<OperationContext> {
  const headers = { 'content-security-policy': pageContentSecurityPolicy(card ? [card.checkoutOrigin] : []) };
  const privatePage = { ...headers, ...PRIVATE_ANSWER };

  const launcher = { site, maxCents: card?.maxCents ?? 0, ratePicoUsd };

  /** While the database is unavailable a lookup finds nothing here; the purchase itself looks again (R15). */
  const ifAvailable = async <T>(lookup: Promise<T>, log: OperationContext['log']) =>
    lookup.catch((err) => {
      if (!isDatabaseFault(err)) throw err;
      log.warn(
        { err },
        'the top-up page could not read the database, so it was shown without a check of the account or earlier purchase. No money moved; check the database',
      );
      return 'unavailable' as const;
    });

  const refusalOf = async (account: string, log: OperationContext['log']): Promise<RefusedAccount | undefined> => {
    const found = await ifAvailable(findCardAccount(db, account, { livemode }), log);
    if (found === 'unavailable') return undefined;
    if (!found) return 'unknown_account';
    return found.isFrozen ? 'frozen_account' : undefined;
  };

  return {
    showTopUp: async ({ query }, { log }) => {
      if (!card) return page(200, headers, pages.cardPaymentOffPage());
      if (pauses.has('top-up')) return pausedPage();
      const { maxCents, purchases } = card;
      const purchase = query.purchase?.trim();
      const found = purchase ? await ifAvailable(purchases.find(purchase), log) : undefined;
      const earlier = found === 'unavailable' ? undefined : found;
      const account = query.account?.trim() || undefined;
      const amount = topUpAmount(query.amount ?? (earlier && String(earlier.amountCents)), maxCents);
      const request = {
        amountCents: amount.cents,
        account,
        challenge: query.challenge?.trim() || earlier?.challengeId,
        purchase: earlier?.accountId && purchase,
      };
      const state = {
        isCanceled: Boolean(query.canceled?.trim()),
        amountNote: amount.note,
        refusedAccount: account === undefined ? undefined : await refusalOf(account, log),
      };
      return page(200, privatePage, launcherPage(launcher, request, state));
    },

    startTopUp: async ({ body = {} }, context) => {
      if (!card) return CARD_OFF;
      const { maxCents } = card;
      const wantsPage = context.prefersHtml();
      const purchase = body.purchaseId?.trim() || undefined;
      const account = body.accountId?.trim() || undefined;
      const challenge = body.challengeId?.trim() || undefined;
      const typed = body.amount === OWN_AMOUNT ? body.ownAmount : undefined;
      const own = typed === undefined ? undefined : typedAmount(typed, maxCents);
      const amountCents = own?.outcome === 'read' ? own.cents : topUpAmount(body.amount, maxCents).cents;
      const request = { amountCents, account, challenge, purchase };
      if (own?.outcome === 'refused') {
        const { rule, message } = own;
        if (!wantsPage) return failure('INVALID_REQUEST', message, { field: 'ownAmount', rule });
        const refusedAmount = { typed: typed ?? '', message };
        return page(400, privatePage, launcherPage(launcher, request, { refusedAmount }));
      }
      if (pauses.has('top-up')) return wantsPage ? pausedPage() : pausedAnswer('top-up');
      const limited = await context.rateLimits.take('request');
      if (limited) {
        return wantsPage
          ? page(limited.status, limited.headers, pages.tooManyPage(limited.headers['retry-after']))
          : limited;
      }
      const earlier = purchase && !account ? await card.purchases.find(purchase) : undefined;
      if (purchase && !account && !earlier) return failure('INVALID_REQUEST', UNKNOWN_PURCHASE, PURCHASE_EXISTS);
      const accountId = account ?? earlier?.accountId;
      const result = await card.purchases.start({ amountCents, accountId, challengeId: challenge });
      if (result.outcome !== 'open') context.addLogFields({ reason: result.outcome });
      switch (result.outcome) {
        case 'open':
          return { status: 303, headers: { location: result.checkoutUrl } };
        case 'unknown_account':
        case 'frozen_account': {
          const state = { refusedAccount: result.outcome };
          if (wantsPage) return page(400, privatePage, launcherPage(launcher, request, state));
          const { message, rule } = REFUSED_ACCOUNT[result.outcome];
          return failure('INVALID_REQUEST', message, { field: 'accountId', rule });
        }
        case 'processor_failed':
          context.log.error(
            { err: result.error },
            'the card processor did not open a checkout, and nobody was charged. Read err for the cause',
          );
          return failure(
            'PAYMENT_ERROR',
            'The card processor did not open a checkout. Try again later. You were not charged.',
          );
      }
    },

    // Credits what the processor says was paid, whatever the buyer's browser sends (R16).
    completeTopUp: async ({ query }, context) => {
      if (!query.session_id) {
        return page(
          400,
          {},
          renderErrorPage(
            'The URL has no session_id. Open the link that the checkout showed after payment. If you have paid, the credit is added automatically.',
          ),
        );
      }
      if (!card) return page(503, {}, renderErrorPage(CARD_OFF_SINCE));
      const result = await card.purchases.complete(query.session_id).catch((err) => {
        context.log.error(
          { err },
          'failed to credit a card purchase. If the buyer has paid, a reconciler tries again. Read err for the cause if the reconciler fails too',
        );
        return { outcome: 'not_now', isOutage: isDatabaseFault(err) } as const;
      });
      if (result.outcome !== 'credited') context.addLogFields({ reason: result.outcome });
      switch (result.outcome) {
        case 'credited':
          return page(200, PRIVATE_ANSWER, pages.creditedPage({ site, baseUrl }, result.credit, result));
        case 'unpaid':
          return page(402, PRIVATE_ANSWER, pages.unpaidPage(result.stage, result.id));
        case 'foreign_session':
          return page(502, {}, pages.foreignSessionPage());
        case 'processor_failed':
          context.log.error(
            { err: result.error },
            'failed to read a checkout session at the card processor. If the buyer has paid, a reconciler tries again. Read err for the cause if the reconciler fails too',
          );
          return page(502, {}, pages.notNowPage("The card processor can't be asked now"));
        case 'not_now':
          return page(result.isOutage ? 503 : 500, {}, pages.notNowPage("Your credit can't be shown now"));
      }
    },

    // An unknown account shows no balance (R20).
    getTopUpStatus: async ({ query }) => {
      const account = await findCardAccount(db, query.account.trim(), { livemode });
      if (!account) {
        const body = creditAccountBody({ id: query.account, balanceMicroUsd: 0n });
        return { status: 404, headers: PRIVATE_ANSWER, body: { ...body, status: 'not_found' } };
      }
      const links = { credits: `${baseUrl}/credits/${account.id}` };
      return {
        status: 200,
        headers: PRIVATE_ANSWER,
        body: { ...creditAccountBody(account), status: 'active', links },
      };
    },
  };
}
