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
import type { RepeatableRequest } from '../jobs/idempotency.ts';
import type { Job } from '../jobs/job.ts';
import { findPreviousJob, type JobRequest, queued } from '../jobs/queued-delivery.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { CardCredential, CardCredits, CardReceipt } from '../payments/card-credits.ts';
import type { Charge, Replayed } from '../payments/payment-flow.ts';
import { NOTHING_CHARGED, unknownPayment } from '../payments/payment-outcome.ts';
import type { Refused } from '../payments/refusal.ts';
import { speak } from '../payments/speak.ts';
import { type Streaming, streamed } from '../payments/streamed-delivery.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRequest, type OrderResult, placeOrder, utteranceOf } from '../speech/order.ts';
import { creditChallenge } from './credit-challenge.ts';
import { refuseForeignHeaders } from './flows.ts';
import { type JobLinks, jobBody } from './job-body.ts';
import { closedSpeech, type Pauses } from './paused.ts';
import { refusalAnswer, refusalFailure } from './refusals.ts';
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
  readonly credential: CardCredential;
  readonly charge: Charge;
}

/** An asynchronous request as it was sent: what it has in common with its repetitions. */
type SentRequest = Omit<JobRequest, 'utterance'>;

/** Text to speech, paid from a card-credit account. */
export function speechOperations(options: SpeechOptions): SpeechOperations<OperationContext> {
  const { db, baseUrl, signer, catalog, streaming, cardCredits, foreignHeaders } = options;
  const { metrics, pauses, work } = options;

  async function answer(request: OrderRequest, terms: SpeechTerms, context: OperationContext) {
    const { headers, storeAudio } = terms;
    const isLater = isAsynchronous(terms.asynchronous, request.text.trim().length);
    const slot = context.admission.pendingSlot(headers['x-credit-account']);
    const placed = placeOrder(catalog, request);
    const sale = readSale(placed, { headers, isLater, slot }, context);
    if (!isLater) return 'status' in sale ? sale : answerNow(sale, slot, context);
    const sent: SentRequest = {
      accountId: headers['x-credit-account'],
      sent: request,
      storeAudio,
      idempotencyKey: headers['idempotency-key'],
      traceId: context.traceId,
    };
    if (!('status' in sale)) return answerLater(sale, sent, slot, context);
    const utterance = placed.outcome === 'placed' ? utteranceOf(placed.order, placed.order.text) : undefined;
    return answerPreviousJob({ ...sent, utterance }, sale, slot, context);
  }

  /** What is sold, or why nothing new is, in the order of R7. */
  function readSale(
    placed: OrderResult,
    { headers, isLater, slot }: Pick<SpeechTerms, 'headers'> & { isLater: boolean; slot: RequestSlot },
    context: OperationContext,
  ) {
    if (placed.outcome === 'refused') return failure(placed.code, placed.message, placed.details);
    const mixed = refuseForeignHeaders(context, foreignHeaders);
    if (mixed) return mixed;
    if (!cardCredits) {
      return failure('CONFIG_ERROR', 'Payment by card is not set up here.', { setting: 'STRIPE_SECRET_KEY' });
    }
    if (!streaming) return providerMissing();
    const shown = cardCredits.credentialOf(headers);
    if (shown.outcome === 'refused') return refusalFailure(shown);
    const closed = closedSpeech(pauses, isLater ? 'jobs' : 'card', context);
    if (closed) return speechFailure(closed, cardCredits.untaken);
    const { text, characters, ratePicoUsd, priceMicroUsd, model } = placed.order;
    context.note({ flow: cardCredits.name, characters });
    const charge: Charge = {
      utterance: utteranceOf(placed.order, text),
      priceMicroUsd,
      paidFor: { model: model.id, characters, ratePicoUsd, traceId: context.traceId },
      request: context,
      slot,
    };
    return { cardCredits, streaming, credential: shown.credential, charge } satisfies CardSale;
  }

  /** Hands the audio on while it is spoken. A hold that nobody captures is void in the end. */
  async function answerNow(sale: CardSale, slot: RequestSlot, context: OperationContext) {
    const { cardCredits, streaming, credential, charge } = sale;
    const { priceMicroUsd } = charge;
    context.payment = NOTHING_CHARGED;
    const onHeld = () => {
      context.payment = unknownPayment(priceMicroUsd);
    };
    const spoken = await speak({ flow: cardCredits, credential, charge, delivery: streamed(streaming), onHeld });
    context.payment = undefined;
    // Whatever else speaks against it, the window's refusal goes before (R39).
    const limited = await slot.refusal();
    if (limited) return limited;
    context.payment = NOTHING_CHARGED;
    switch (spoken.outcome) {
      case 'delivered': {
        context.admission.credentialVerified();
        const { mimeType, audio, ended } = spoken.delivered;
        const noted = ended.then((isCharged) => context.note({ chargedMicroUsd: isCharged ? priceMicroUsd : 0n }));
        work
          .add(context.follow(noted))
          .catch((err) => context.log.error({ err }, 'a hold could not be ended; its lease ends it'));
        const headers = { 'cache-control': PRIVATE, ...spoken.hold.receipt };
        return { status: 200 as const, type: mimeType, headers, body: audio };
      }
      case 'refused':
        if (spoken.isUncharged) context.note({ chargedMicroUsd: 0n });
        if (spoken.reason === 'unknown_account') context.admission.credentialUnknown();
        return refusalAnswer(spoken, challengeOf(charge, context));
      case 'failed':
        return speechFailed(cardCredits, spoken, context);
    }
  }

  /** Answers with the job that speaks it. */
  async function answerLater(sale: CardSale, sent: SentRequest, slot: RequestSlot, context: OperationContext) {
    const { cardCredits, streaming, credential, charge } = sale;
    const limited = await slot.refusal();
    if (limited) return limited;
    const request = { ...sent, utterance: charge.utterance };
    const delivery = queued({ db, admission: streaming.admission, livemode: cardCredits.livemode }, request);
    context.payment = unknownPayment(charge.priceMicroUsd);
    const spoken = await speak({ flow: cardCredits, credential, charge, delivery });
    switch (spoken.outcome) {
      case 'delivered':
        metrics.holdMoved(cardCredits.name, 'placed', charge.priceMicroUsd);
        return accepted(spoken.delivered, spoken.hold.receipt);
      case 'replayed':
        return repeated(spoken, context);
      case 'refused':
        context.payment = NOTHING_CHARGED;
        return refusalAnswer(spoken, challengeOf(charge, context));
      case 'failed':
        context.payment = NOTHING_CHARGED;
        return answerPreviousJob(request, speechFailed(cardCredits, spoken, context), slot, context);
    }
  }

  /**
   * The job of the earlier request with the same idempotency key, else the refusal. Whatever today's settings speak
   * against is told only when there is none (R45).
   */
  async function answerPreviousJob<Refusal>(
    request: RepeatableRequest,
    refusal: Refusal,
    slot: RequestSlot,
    context: OperationContext,
  ) {
    if (!request.accountId || request.idempotencyKey === undefined) return refusal;
    context.payment = undefined;
    const earlier = await findPreviousJob(db, cardCredits?.livemode, request);
    if (earlier?.outcome !== 'replayed') {
      context.payment = NOTHING_CHARGED;
      return earlier ? refusalFailure(earlier) : refusal;
    }
    return (await slot.refusal()) ?? repeated(earlier, context);
  }

  const challengeOf =
    ({ priceMicroUsd }: Charge, { payment }: OperationContext) =>
    (refusal: Refused, message: string) =>
      creditChallenge({ baseUrl, priceMicroUsd, payment }, refusal, message);

  function repeated({ delivered: job, receipt }: Replayed<Job, CardReceipt>, context: OperationContext) {
    context.log.info({ job: job.id, first: job.traceId }, 'the job of an earlier request is shown');
    return accepted(job, receipt);
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
