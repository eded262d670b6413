import type { FastifyInstance } from 'fastify';
import { creditsRoutes, speechRoutes, topUpRoutes, webhooksRoutes } from '../contract/routes.ts';
import { bodyLimitOf, operations } from '../http/operations.ts';
import { creditsOperations } from '../http/routes/credits-operations.ts';
import { speechOperations } from '../http/routes/speech-operations.ts';
import { TOP_UP_WINDOW_SECONDS, topUpOperations } from '../http/routes/top-up-operations.ts';
import { webhookOperations } from '../http/routes/webhook-operations.ts';
import { credentialAlarm } from '../observability/outside.ts';
import { CardCredits } from '../payments/card/card-credits.ts';
import { RollingWindow } from '../payments/limits/rolling-window.ts';
import { Processor } from '../payments/top-up/processor.ts';
import { Purchases } from '../payments/top-up/purchases.ts';
import { cardReconcilers } from '../reconcile/reconcilers.ts';
import type { SharedParts } from './feature.ts';
import type { Holds } from './holds-feature.ts';
import type { Jobs } from './jobs-feature.ts';
import type { Speech } from './speech-feature.ts';

/** Card credit: bought at the hosted checkout, spent for speech. @param foreignHeaders of the other flows (R36) */
export function openCard(
  { config, db, limits, metrics, pauses, log }: SharedParts,
  { holds, jobs, speech }: { holds: Holds; jobs: Jobs; speech: Speech },
  foreignHeaders: readonly string[],
  hurry: (reconcilers: readonly string[]) => void,
) {
  const { baseUrl, serviceName, catalog } = config;
  const { ratePicoUsd } = catalog.defaultModel;
  const onRefused = credentialAlarm({ metrics, log }, 'STRIPE_SECRET_KEY');
  const reporting = { onRefused, calls: metrics.outside('processor') };
  const { apiBase, checkoutOrigin = '', livemode, webhookSecret, automaticTax = false } = config.card ?? {};
  const card = config.card && {
    credits: new CardCredits(config.card.livemode, limits, holds.parts()),
    purchases: new Purchases(
      db,
      new Processor(config.card.secretKey, apiBase, { checkoutOrigin, automaticTax, ...reporting }),
      {
        baseUrl,
        serviceName,
      },
    ),
    checkoutOrigin,
    maxCents: config.card.topUpMaxCents,
  };
  if (!card)
    log.warn('card credits are off, because STRIPE_SECRET_KEY is not set. Set it to let callers buy and spend credit');
  const purchaseWindow = config.card && { max: config.card.topUpRateLimitMax, windowSeconds: TOP_UP_WINDOW_SECONDS };
  const speechByCard = speechOperations({
    db,
    baseUrl,
    catalog,
    metrics,
    pauses,
    foreignHeaders,
    signer: jobs.signer,
    streaming: speech.speaking,
    cardCredits: card?.credits,
  });
  const routes = [
    ...speechRoutes(speechByCard),
    ...topUpRoutes(topUpOperations(db, { baseUrl, site: config, ratePicoUsd, card, livemode, pauses })),
    ...creditsRoutes(creditsOperations(db, config, livemode)),
    ...(webhookSecret ? webhooksRoutes(webhookOperations(db, webhookSecret, hurry)) : []),
  ];
  const bodyLimits = { createSpeech: bodyLimitOf(catalog) };
  return {
    plugin: async (server: FastifyInstance) => void server.register(operations, { routes, bodyLimits }),
    purchaseLimits: purchaseWindow && new RollingWindow(db, purchaseWindow, metrics),
    reconcilers: cardReconcilers(db, config, reporting),
  };
}
