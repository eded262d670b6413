import { Readable } from 'node:stream';
import type { Catalog, Model } from '../../config/catalog.ts';
import type {
  CreateSpeechResult,
  GetSpeechRequest,
  GetSpeechResult,
  SpeechOperations,
} from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { isAsynchronous, type Job } from '../../jobs/job.ts';
import {
  findReplayedJob,
  type JobRequest,
  queueJob,
  type RepeatableRequest,
  type ReplayedJob,
} from '../../jobs/queue-job.ts';
import type { Metrics } from '../../observability/metrics.ts';
import type { CardCredential, CardCredits, CardReceipt } from '../../payments/card/card-credits.ts';
import { type Streaming, streamed } from '../../payments/delivery.ts';
import { NOTHING_CHARGED, type Refused, unknownPayment } from '../../payments/refusal.ts';
import { type Charge, speak } from '../../payments/speak.ts';
import { type OrderRequest, type OrderResult, partsOf, placeOrder, utteranceOf } from '../../speech/order.ts';
import type { SynthesisPermits } from '../../speech/synthesis-permits.ts';
import { CARD_OFF, PROVIDER_OFF } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import type { RequestSlot } from '../plugins/rate-limits.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure, isAnswer } from '../structured-error.ts';
import { creditChallenge } from './credit-challenge.ts';
import { type Pauses, pausedSpeech, refuseForeignHeaders } from './flows.ts';
import { type JobLinks, jobBody } from './jobs-operations.ts';
import { refusalAnswer, refusalFailure, speechFailed, speechFailure } from './refusals.ts';

export interface SpeechOptions extends JobLinks {
  readonly db: Database;
  readonly catalog: Catalog;
  readonly streaming: StreamedSpeechParts | undefined;
  /** Undefined while card payment is off (R47). */
  readonly cardCredits: CardCredits | undefined;
  readonly foreignHeaders: readonly string[];
  readonly metrics: Metrics;
  readonly pauses: Pauses;
}

export interface StreamedSpeechParts extends Streaming {
  readonly permits: SynthesisPermits;
}

/** Everything but the order. `storeAudio` and the idempotency key count only for asynchronous requests (R6). */
interface SpeechTerms {
  readonly isLater: boolean;
  readonly storeAudio: boolean;
  readonly headers: GetSpeechRequest['headers'];
}

interface CardSale {
  readonly cardCredits: CardCredits;
  readonly streaming: StreamedSpeechParts;
  readonly credential: CardCredential;
  readonly charge: Charge;
  readonly model: Model;
}

type SentRequest = Omit<JobRequest, 'utterance' | 'parts'>;

export function speechOperations(options: SpeechOptions): SpeechOperations<OperationContext> {
  const { db, baseUrl, signer, catalog, streaming, cardCredits, foreignHeaders } = options;
  const { metrics, pauses } = options;

  async function answer(request: OrderRequest, terms: SpeechTerms, context: OperationContext) {
    const { headers, storeAudio } = terms;
    const slot = context.rateLimits.pendingSlot(headers['x-credit-account']);
    const placed = placeOrder(catalog, request);
    const sale = readSale(placed, terms, slot, context);
    // R17: without a job an idempotency key has no effect.
    if (!terms.isLater) return isAnswer(sale) ? sale : answerNow(sale, slot, context);
    const sent: SentRequest = {
      accountId: headers['x-credit-account'],
      sent: request,
      storeAudio,
      idempotencyKey: headers['idempotency-key'],
      traceId: context.traceId,
    };
    if (!isAnswer(sale)) return answerLater(sale, sent, slot, context);
    const utterance = placed.outcome === 'placed' ? utteranceOf(placed.order, placed.order.text) : undefined;
    return answerReplayedJob({ ...sent, utterance }, sale, slot, context);
  }

  /** The sale, or the first refusal in the order of R7, such as headers of another flow (R36). */
  function readSale(
    placed: OrderResult,
    { headers, isLater }: SpeechTerms,
    slot: RequestSlot,
    context: OperationContext,
  ) {
    if (placed.outcome === 'refused') return failure(placed.code, placed.message, placed.details);
    const mixed = refuseForeignHeaders(context, foreignHeaders);
    if (mixed) return mixed;
    if (!cardCredits) return CARD_OFF;
    if (!streaming) return PROVIDER_OFF;
    const shown = cardCredits.credentialOf(headers);
    if (shown.outcome === 'refused') return refusalFailure(shown);
    const closed = pausedSpeech(pauses, isLater ? 'jobs' : 'card');
    if (closed) return speechFailure(closed);
    const { text, characters, ratePicoUsd, priceMicroUsd, model } = placed.order;
    context.addLogFields({ flow: cardCredits.name, characters });
    const charge: Charge = {
      utterance: utteranceOf(placed.order, text),
      priceMicroUsd,
      usage: { model: model.id, characters, ratePicoUsd, traceId: context.traceId },
      request: context,
      slot,
    };
    return { cardCredits, streaming, credential: shown.credential, charge, model } satisfies CardSale;
  }

  /** Streams the audio during synthesis. A hold that is never captured is voided in the end. */
  async function answerNow(sale: CardSale, slot: RequestSlot, context: OperationContext) {
    const { cardCredits, streaming, credential, charge } = sale;
    const { priceMicroUsd } = charge;
    context.payment = NOTHING_CHARGED;
    const sold = await speak({
      authorize: () => cardCredits.authorize(credential, charge),
      charge,
      delivery: streamed(streaming),
      permits: streaming.permits,
      onHeld: () => {
        context.payment = unknownPayment(priceMicroUsd);
      },
      onBrokenOff: (error) =>
        context.log.warn(
          { err: error },
          'the audio ended early, so the response is incomplete and its caller was not charged. Read err for the cause',
        ),
    });
    context.payment = undefined;
    // The window's refusal precedes all other results (R39).
    const limited = await slot.refusal();
    if (limited) return limited;
    context.payment = NOTHING_CHARGED;
    switch (sold.outcome) {
      case 'ready': {
        context.rateLimits.uncountVerified();
        const { mimeType, audio } = sold.body;
        context.followCharge(sold.captured, priceMicroUsd);
        const buffering = audio instanceof Readable ? { 'x-accel-buffering': 'no' as const } : {};
        const headers = { 'cache-control': PRIVATE_CACHE, ...sold.hold.receipt, ...buffering };
        return { status: 200 as const, type: mimeType, headers, body: audio };
      }
      case 'refused':
        if (sold.reason === 'unknown_account') context.rateLimits.rememberFailedCredential();
        return refusalAnswer(sold, challengeOf(charge, context));
      case 'failed':
        return speechFailed(sold, context);
    }
  }

  async function answerLater(sale: CardSale, sent: SentRequest, slot: RequestSlot, context: OperationContext) {
    const { cardCredits, credential, charge, model } = sale;
    const limited = await slot.refusal();
    if (limited) return limited;
    const { utterance } = charge;
    const parts = partsOf(utterance.text, model);
    const request = { ...sent, utterance, parts };
    context.payment = unknownPayment(charge.priceMicroUsd);
    const queued = await queueJob(db, cardCredits, { credential, charge }, request);
    switch (queued.outcome) {
      case 'queued':
        metrics.holdMoved(cardCredits.name, 'placed', charge.priceMicroUsd);
        return accepted(queued.job, queued.receipt);
      case 'replayed':
        return replayed(queued, context);
      case 'refused':
        context.payment = NOTHING_CHARGED;
        return refusalAnswer(queued, challengeOf(charge, context));
    }
  }

  /** The job of an earlier request with the key, otherwise the refusal. Today's settings must not hide it (R45). */
  async function answerReplayedJob<Refusal>(
    request: RepeatableRequest,
    refusal: Refusal,
    slot: RequestSlot,
    context: OperationContext,
  ) {
    if (!request.accountId || request.idempotencyKey === undefined) return refusal;
    context.payment = undefined;
    const replay = await findReplayedJob(db, cardCredits?.livemode, request);
    if (replay?.outcome !== 'replayed') {
      context.payment = NOTHING_CHARGED;
      return replay ? refusalFailure(replay) : refusal;
    }
    return (await slot.refusal()) ?? replayed(replay, context);
  }

  const challengeOf =
    ({ priceMicroUsd }: Charge, { payment }: OperationContext) =>
    (refusal: Refused, message: string) =>
      creditChallenge({ baseUrl, priceMicroUsd, payment }, refusal, message);

  function replayed({ job, receipt }: ReplayedJob, context: OperationContext) {
    context.log.info(
      { job: job.id, first: job.traceId },
      'returned the job of an earlier request; it is not charged again',
    );
    return accepted(job, receipt);
  }

  const accepted = async (job: Job, receipt: CardReceipt) => ({
    status: 202 as const,
    headers: { 'cache-control': PRIVATE_CACHE, ...receipt },
    body: await jobBody(job, { baseUrl, signer }),
  });

  const termsOf = (headers: SpeechTerms['headers'], isAsked: boolean, text: string, storeAudio: boolean) => ({
    isLater: isAsynchronous(isAsked, text.trim().length),
    storeAudio,
    headers,
  });

  return {
    createSpeech: async ({ query, headers, body }, context): Promise<CreateSpeechResult> => {
      const { model, voice, speed } = query;
      const isText = body.type === 'text/plain';
      const request = isText ? { text: body.value, model, voice, speed } : body.value;
      // Either false wins (R2).
      const storeAudio = query.storeAudio !== 'false' && (isText || body.value.storeAudio !== false);
      return answer(request, termsOf(headers, query.async === 'true', request.text, storeAudio), context);
    },
    getSpeech: async ({ query, headers }, context): Promise<GetSpeechResult> =>
      answer(query, termsOf(headers, query.async === 'true', query.text, query.storeAudio !== 'false'), context),
  };
}
