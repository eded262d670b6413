import type {
  CreateSpeechRequest,
  CreateSpeechResult,
  GetSpeechRequest,
  GetSpeechResult,
  SpeechOperations,
} from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import type { RequestSlot } from '../http/request-slot.ts';
import { failure } from '../http/structured-error.ts';
import { isAsynchronous } from '../jobs/asynchronous.ts';
import type { Job } from '../jobs/job.ts';
import { queued } from '../jobs/queued-delivery.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { CardCredits, CardReceipt } from '../payments/card-credits.ts';
import type { Charge } from '../payments/payment-flow.ts';
import type { Refused } from '../payments/refusal.ts';
import { speak } from '../payments/speak.ts';
import { type Streaming, streamed } from '../payments/streamed-delivery.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRequest, placeOrder, utteranceOf } from '../speech/order.ts';
import type { SpeechError } from '../speech/provider.ts';
import { creditChallenge } from './credit-challenge.ts';
import { refuseForeignHeaders } from './flows.ts';
import { type JobLinks, jobBody } from './job-body.ts';
import { closedSpeech, type Pauses } from './paused.ts';
import { refusalAnswer } from './refusals.ts';
import { providerMissing, speechFailed, speechFailure } from './speech-failure.ts';

export interface SpeechOptions extends JobLinks {
  readonly db: Database;
  readonly catalog: Catalog;
  /** Undefined while no speech provider is configured. */
  readonly streaming: Streaming | undefined;
  /** Undefined while payment by card is off (R47). */
  readonly cardCredits: CardCredits | undefined;
  /** Of the other flows (R36). */
  readonly foreignHeaders: readonly string[];
  readonly metrics: Metrics;
  readonly pauses: Pauses;
  readonly work: RunningWork;
}

/** What a request says beside the order. */
interface SpeechTerms {
  readonly asynchronous: boolean;
  /** Of an asynchronous request; so is the idempotency key. */
  readonly storeAudio: boolean;
  readonly headers: GetSpeechRequest['headers'];
}

interface CardSale {
  readonly cardCredits: CardCredits;
  readonly streaming: Streaming;
  readonly accountId: string | undefined;
  readonly charge: Charge;
  readonly challenge: (refusal: Refused, message: string) => ReturnType<typeof creditChallenge>;
  /** Why nothing new is sold now. */
  readonly closed: SpeechError | undefined;
}

/** Text to speech, paid from a card-credit account. */
export function speechOperations(options: SpeechOptions): SpeechOperations<OperationContext> {
  const { db, baseUrl, signer, catalog, streaming, cardCredits, foreignHeaders } = options;
  const { metrics, pauses, work } = options;

  async function answer(request: OrderRequest, terms: SpeechTerms, context: OperationContext) {
    const placed = placeOrder(catalog, request);
    if (placed.outcome === 'refused') {
      const { code, message, details } = placed;
      return failure(code, message, details);
    }
    const { order } = placed;
    const mixed = refuseForeignHeaders(context, foreignHeaders);
    if (mixed) return mixed;
    if (!cardCredits)
      return failure('CONFIG_ERROR', 'Payment by card is not set up here.', { setting: 'STRIPE_SECRET_KEY' });
    if (!streaming) return providerMissing();

    const { characters, ratePicoUsd, priceMicroUsd } = order;
    context.note({ flow: cardCredits.name, characters });
    const { credential: accountId } = cardCredits.credentialOf(terms.headers);
    const slot = context.admission.pendingSlot(accountId);
    const isLater = isAsynchronous(terms.asynchronous, characters);
    const closed = closedSpeech(pauses, isLater ? 'jobs' : 'card', context);
    if (closed && !isLater) return speechFailure(closed, cardCredits.untaken);
    const limited = isLater ? await slot.refusal() : undefined;
    if (limited) return limited;
    const charge: Charge = {
      utterance: utteranceOf(order, order.text),
      priceMicroUsd,
      paidFor: { model: order.model.id, characters, ratePicoUsd, traceId: context.traceId },
      request: context,
      slot,
    };
    const challenge = (refusal: Refused, message: string) =>
      creditChallenge({ baseUrl, priceMicroUsd }, refusal, message);
    const sale = { cardCredits, streaming, accountId, charge, challenge, closed };
    return isLater ? answerLater(sale, terms, context) : answerNow(sale, slot, context);
  }

  /** Hands the audio on while it is spoken. */
  async function answerNow(
    { cardCredits, streaming, accountId, charge, challenge }: CardSale,
    slot: RequestSlot,
    context: OperationContext,
  ) {
    const delivery = streamed(streaming);
    const spoken = await speak({ flow: cardCredits, credential: accountId, charge, delivery });
    // Whatever else speaks against it, the window's refusal goes before (R39).
    const limited = await slot.refusal();
    if (limited) return limited;
    switch (spoken.outcome) {
      case 'delivered': {
        context.admission.credentialVerified();
        const { mimeType, audio, ended } = spoken.delivered;
        const noted = ended.then((isCharged) =>
          context.note({ chargedMicroUsd: isCharged ? charge.priceMicroUsd : 0n }),
        );
        work
          .add(context.follow(noted))
          .catch((err) => context.log.error({ err }, 'a hold could not be ended; its lease ends it'));
        const headers = { 'cache-control': PRIVATE, ...spoken.hold.receipt };
        return { status: 200 as const, type: mimeType, headers, body: audio };
      }
      case 'refused':
        if (spoken.isUncharged) context.note({ chargedMicroUsd: 0n });
        if (spoken.reason === 'unknown_account') context.admission.credentialUnknown();
        return refusalAnswer(spoken, challenge);
      case 'failed':
        return speechFailed(cardCredits, spoken, context);
    }
  }

  /** Answers with the job that speaks it. */
  async function answerLater(
    { cardCredits, streaming, accountId, charge, challenge, closed }: CardSale,
    { storeAudio, headers }: SpeechTerms,
    context: OperationContext,
  ) {
    const { utterance } = charge;
    const idempotencyKey = headers['idempotency-key'];
    const request = { accountId, utterance, storeAudio, idempotencyKey, traceId: context.traceId };
    const delivery = queued({ db, admission: streaming.admission, livemode: cardCredits.livemode }, request);
    const spoken = closed
      ? await delivery.replay()
      : await speak({ flow: cardCredits, credential: accountId, charge, delivery });
    if (!spoken) return speechFailure(closed as SpeechError, cardCredits.untaken);
    switch (spoken.outcome) {
      case 'delivered':
        metrics.holdMoved(cardCredits.name, 'placed', charge.priceMicroUsd);
        return accepted(spoken.delivered, spoken.hold.receipt);
      case 'replayed': {
        const job = spoken.delivered;
        context.log.info({ job: job.id, first: job.traceId }, 'the job of an earlier request is shown');
        return accepted(job, spoken.receipt);
      }
      case 'refused':
        return refusalAnswer(spoken, challenge);
      case 'failed':
        return speechFailed(cardCredits, spoken, context);
    }
  }

  const accepted = async (job: Job, receipt: CardReceipt) => ({
    status: 202 as const,
    headers: { 'cache-control': PRIVATE, ...receipt },
    body: await jobBody(job, { baseUrl, signer }),
  });

  return {
    createSpeech: async ({ query, headers, body }, context): Promise<CreateSpeechResult> => {
      const isText = body.type === 'text/plain';
      const request = isText
        ? { text: body.value, model: query.model, voice: query.voice, speed: query.speed }
        : body.value;
      // Either false wins (R2).
      const storeAudio = query.storeAudio !== 'false' && (isText || body.value.storeAudio !== false);
      return answer(request, termsOf(query, headers, storeAudio), context);
    },
    getSpeech: async ({ query, headers }, context): Promise<GetSpeechResult> =>
      answer(query, termsOf(query, headers, query.storeAudio !== 'false'), context),
  };
}

const termsOf = (
  query: GetSpeechRequest['query'] | CreateSpeechRequest['query'],
  headers: GetSpeechRequest['headers'],
  storeAudio: boolean,
): SpeechTerms => ({
  asynchronous: query.async === 'true',
  storeAudio,
  headers,
});
