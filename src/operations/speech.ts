import type {
  CreateSpeechRequest,
  CreateSpeechResult,
  GetSpeechRequest,
  GetSpeechResult,
  SpeechOperations,
} from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import type { OperationContext } from '../http/context.ts';
import { failure } from '../http/errors.ts';
import { PRIVATE } from '../http/headers.ts';
import { acceptJob } from '../jobs/accept.ts';
import { isAsynchronous } from '../jobs/asynchronous.ts';
import type { Job } from '../jobs/job.ts';
import type { Metrics } from '../metrics.ts';
import type { CardCredits } from '../payments/card-credits.ts';
import { creditChallenge } from '../payments/credit-challenge.ts';
import { paidFor } from '../payments/paid-for.ts';
import { type Streaming, streamSpeech } from '../payments/streamed.ts';
import type { RunningWork } from '../running-work.ts';
import type { Admission } from '../speech/admission.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type Order, type OrderRequest, placeOrder } from '../speech/order.ts';
import { type Place, SpeechError, type Utterance } from '../speech/provider.ts';
import { busy } from './busy.ts';
import { refuseX402Headers } from './flows.ts';
import { type JobLinks, jobBody } from './job-body.ts';
import { speechFailure } from './speech-failure.ts';

export interface SpeechOptions extends JobLinks {
  readonly db: Database;
  readonly serviceName: string;
  readonly catalog: Catalog;
  /** Undefined while no speech provider is configured. */
  readonly speech: { readonly admission: Admission; readonly streaming: Streaming } | undefined;
  /** Undefined while payment by card is off (R47). */
  readonly cardCredits: CardCredits | undefined;
  /** Of the processor's key. Undefined while payment by card is off. */
  readonly livemode: boolean | undefined;
  readonly metrics: Metrics;
  readonly work: RunningWork;
}

const NOT_CHARGED = 'Nothing was charged.';

/** What a request says beside the order. */
interface Wishes {
  readonly accountId: string | undefined;
  readonly asynchronous: boolean;
  /** Of an asynchronous request; so is the key. */
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
}

/** Text to speech, paid from a card-credit account. */
export function speechOperations(options: SpeechOptions): SpeechOperations {
  const { db, baseUrl, signer, serviceName, catalog, speech, cardCredits, livemode, metrics, work } = options;

  async function speak(request: OrderRequest, wishes: Wishes, context: OperationContext) {
    const placed = placeOrder(catalog, request);
    if ('refusal' in placed) {
      const { code, message, details } = placed.refusal;
      return failure(code, message, details);
    }
    const { order } = placed;
    const mixed = refuseX402Headers(context.headers);
    if (mixed) return mixed;
    if (!cardCredits)
      return failure('CONFIG_ERROR', 'Payment by card is not set up here.', { setting: 'STRIPE_SECRET_KEY' });
    if (!speech) {
      const details = { setting: 'SPEECH_BASE_URL' };
      return failure('TTS_PROVIDER_NOT_CONFIGURED', 'No speech provider is set up here.', details);
    }

    context.note({ flow: 'card', characters: order.characters });
    const { accountId } = wishes;
    const limited = await context.admission.take('request', accountId);
    if (limited) return limited;
    const utterance = utteranceOf(order);
    if (isAsynchronous(wishes.asynchronous, order.characters)) {
      const refusal = speech.admission.refuse(utterance);
      return refusal ? speechFailure(refusal, NOT_CHARGED) : speakLater(order, utterance, wishes, context);
    }
    const place = speech.admission.admit(utterance);
    if (place instanceof SpeechError) return speechFailure(place, NOT_CHARGED);
    try {
      return await speakNow(order, utterance, accountId, { cardCredits, place, streaming: speech.streaming }, context);
    } finally {
      place.release();
    }
  }

  async function speakNow(
    order: Order,
    utterance: Utterance,
    accountId: string | undefined,
    { cardCredits, place, streaming }: { cardCredits: CardCredits; place: Place; streaming: Streaming },
    context: OperationContext,
  ) {
    const authorization = await cardCredits.authorize(order, accountId, context.traceId, context.answer);
    if (authorization.outcome === 'busy') return busy(authorization.reason);
    if (authorization.outcome === 'refused') {
      return creditChallenge(baseUrl, serviceName, order.priceMicroUsd, authorization.refusal);
    }
    const { hold } = authorization;
    const { priceMicroUsd } = order;
    try {
      const { mimeType, audio, ended } = await streamSpeech(hold, place, utterance, streaming);
      const noted = ended.then((isCharged) => context.note({ chargedMicroUsd: isCharged ? priceMicroUsd : 0n }));
      work
        .add(context.follow(noted))
        .catch((err) => context.log.error({ err }, 'a hold could not be ended; its lease ends it'));
      return {
        status: 200 as const,
        type: mimeType,
        headers: {
          'x-credit-account': accountId ?? '',
          'x-credit-balance': hold.balanceMicroUsd,
          'cache-control': PRIVATE,
        },
        body: audio,
      };
    } catch (error) {
      if (!(error instanceof SpeechError)) throw error;
      context.note({ chargedMicroUsd: 0n });
      context.log.warn({ err: error }, 'synthesis failed');
      return speechFailure(error, NOT_CHARGED);
    }
  }

  async function speakLater(order: Order, utterance: Utterance, wishes: Wishes, context: OperationContext) {
    const { traceId } = context;
    const { accountId, storeAudio, idempotencyKey } = wishes;
    const { priceMicroUsd } = order;
    const accepted = await acceptJob(db, {
      ...{ accountId, livemode, utterance, priceMicroUsd, storeAudio, idempotencyKey, traceId },
      paidFor: paidFor(order, traceId),
    });
    switch (accepted.outcome) {
      case 'refused':
        return creditChallenge(baseUrl, serviceName, priceMicroUsd, accepted.refusal);
      case 'conflict':
        return failure('INVALID_REQUEST', 'idempotency-key was used for another request. Use a new one.', {
          field: 'idempotency-key',
          rule: 'same request',
        });
      case 'accepted':
        metrics.holdMoved('card', 'placed', priceMicroUsd);
        return jobAccepted(accepted);
      case 'repeated':
        context.log.info(
          { job: accepted.job.id, first: accepted.job.traceId },
          'the job of an earlier request is shown',
        );
        return jobAccepted(accepted);
    }

    async function jobAccepted({ job, balanceMicroUsd }: { job: Job; balanceMicroUsd: bigint }) {
      return {
        status: 202 as const,
        headers: {
          'x-credit-account': accountId ?? '',
          'x-credit-balance': balanceMicroUsd,
          'cache-control': PRIVATE,
        },
        body: await jobBody(job, { baseUrl, signer }),
      };
    }
  }

  return {
    createSpeech: async ({ query, headers, body }, context): Promise<CreateSpeechResult> => {
      const isText = body.type === 'text/plain';
      const request = isText
        ? { text: body.value, model: query.model, voice: query.voice, speed: query.speed }
        : body.value;
      // Either false wins (R2).
      const storeAudio = query.storeAudio !== 'false' && (isText || body.value.storeAudio !== false);
      return speak(request, wishes(query, headers, storeAudio), context);
    },
    getSpeech: async ({ query, headers }, context): Promise<GetSpeechResult> =>
      speak(query, wishes(query, headers, query.storeAudio !== 'false'), context),
  };
}

const wishes = (
  query: GetSpeechRequest['query'] | CreateSpeechRequest['query'],
  headers: GetSpeechRequest['headers'],
  storeAudio: boolean,
): Wishes => ({
  accountId: headers['x-credit-account'],
  asynchronous: query.async === 'true',
  storeAudio,
  idempotencyKey: headers['idempotency-key'],
});

const utteranceOf = ({ text, model, voice, speed }: Order): Utterance => ({
  text,
  model: model.upstreamModel,
  voice: voice.upstreamVoice,
  speed,
});
