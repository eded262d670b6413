import type { CreditsOperations, SpeechOperations, TopUpOperations } from '../contract/operations.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { RollingWindow } from '../limits/rolling-window.ts';
import { credentialAlarm } from '../observability/credential-alarm.ts';
import { creditsOperations } from '../operations/credits-operations.ts';
import { speechOperations } from '../operations/speech-operations.ts';
import { TOP_UP_WINDOW_SECONDS, topUpOperations } from '../operations/top-up-operations.ts';
import { CardCredits } from '../payments/card-credits.ts';
import { cardReconcilers } from '../reconcile/reconcilers.ts';
import { Processor } from '../top-up/processor.ts';
import { Purchases } from '../top-up/purchases.ts';
import type { Feature, SharedParts } from './feature.ts';
import type { Holds } from './holds-feature.ts';
import type { Jobs } from './jobs-feature.ts';
import type { Speech } from './speech-feature.ts';

export interface Card extends Feature {
  readonly operations: {
    readonly speech: SpeechOperations<OperationContext>;
    readonly topUp: TopUpOperations<OperationContext>;
    readonly credits: CreditsOperations<OperationContext>;
  };
  /** Counts the purchases that are begun, by address; undefined while payment by card is off. */
  readonly purchaseLimits: RollingWindow | undefined;
}

/** Card credits: bought on the hosted checkout, and spent for speech. @param foreignHeaders of the other flows (R36) */
export function openCard(
  { config, db, limits, metrics, pauses, work, log }: SharedParts,
  { holds, jobs, speech }: { holds: Holds; jobs: Jobs; speech: Speech },
  foreignHeaders: readonly string[],
): Card {
  const { baseUrl, serviceName, catalog } = config;
  const onRefused = credentialAlarm({ metrics, log }, 'STRIPE_SECRET_KEY');
  const card = config.card && {
    credits: new CardCredits(config.card.livemode, limits.gate, holds.parts()),
    purchases: new Purchases(
      db,
      new Processor(config.card.secretKey, config.card.apiBase, {
        checkoutOrigin: config.card.checkoutOrigin,
        onRefused,
      }),
      { baseUrl, serviceName },
    ),
    checkoutOrigin: config.card.checkoutOrigin,
    maxCents: config.card.topUpMaxCents,
  };
  if (!card) log.warn('card credits are off: STRIPE_SECRET_KEY is unset, their endpoints answer 503');
  const livemode = config.card?.livemode;
  const purchaseWindow = config.card && { max: config.card.topUpRateLimitMax, windowSeconds: TOP_UP_WINDOW_SECONDS };
  return {
    operations: {
      speech: speechOperations({
        ...{ db, baseUrl, catalog, metrics, pauses, work, foreignHeaders },
        signer: jobs.signer,
        streaming: speech.speaking?.streaming,
        cardCredits: card?.credits,
      }),
      topUp: topUpOperations(db, { baseUrl, serviceName, card, livemode, pauses }),
      credits: creditsOperations(db, livemode),
    },
    purchaseLimits: purchaseWindow && new RollingWindow(db, purchaseWindow, metrics),
    reconcilers: cardReconcilers(db, config, onRefused),
  };
}
