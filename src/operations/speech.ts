import type { CreateSpeechResult, GetSpeechResult, SpeechOperations } from '../contract/operations.ts';
import type { OperationContext } from '../http/context.ts';
import { failure } from '../http/errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { RollingWindow } from '../limits/rolling-window.ts';
import type { CardCredits } from '../payments/card-credits.ts';
import { creditChallenge } from '../payments/credit-challenge.ts';
import { streamSpeech } from '../payments/streamed.ts';
import type { RunningWork } from '../running-work.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRequest, placeOrder } from '../speech/order.ts';
import { SpeechError, type SpeechProvider } from '../speech/provider.ts';
import { refuseX402Headers } from './flows.ts';
import { addressBucket, meter } from './rate-limit.ts';

export interface SpeechOptions {
  readonly baseUrl: string;
  readonly serviceName: string;
  readonly catalog: Catalog;
  /** Undefined while no speech provider is configured. */
  readonly speech: { readonly provider: SpeechProvider; readonly timeoutMs: number } | undefined;
  /** Undefined while payment by card is off (R47). */
  readonly cardCredits: CardCredits | undefined;
  readonly limits: RollingWindow;
  readonly work: RunningWork;
}

/** Text to speech, paid from a card-credit account. */
export function speechOperations(options: SpeechOptions): SpeechOperations {
  const { baseUrl, serviceName, catalog, speech, cardCredits, limits, work } = options;

  async function speak(request: OrderRequest, accountId: string | undefined, context: OperationContext) {
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

    const limited = await meter(context, limits.takeForAccount(accountId, addressBucket(context)));
    if (limited) return limited;

    const authorization = await cardCredits.authorize(order, accountId);
    if (authorization.outcome === 'refused') {
      return creditChallenge(baseUrl, serviceName, order.priceMicroUsd, authorization.refusal);
    }
    const { hold } = authorization;
    const utterance = {
      text: order.text,
      model: order.model.upstreamModel,
      voice: order.voice.upstreamVoice,
      speed: order.speed,
    };
    try {
      const { mimeType, audio, ended } = await streamSpeech(hold, speech.provider, utterance, speech.timeoutMs);
      work.add(ended).catch((err) => context.log.error({ err }, 'a hold could not be ended; its lease ends it'));
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
      context.log.warn({ err: error }, 'synthesis failed');
      return speechFailure(error);
    }
  }

  return {
    createSpeech: async ({ query, headers, body }, context): Promise<CreateSpeechResult> => {
      const request =
        body.type === 'text/plain'
          ? { text: body.value, model: query.model, voice: query.voice, speed: query.speed }
          : body.value;
      return speak(request, headers['x-credit-account'], context);
    },
    getSpeech: async ({ query, headers }, context): Promise<GetSpeechResult> =>
      speak(query, headers['x-credit-account'], context),
  };
}

/** A failed synthesis as the caller sees it; the debit has been refunded by then. */
function speechFailure(error: SpeechError) {
  const answer = failure(error.code, `${error.message} Nothing was charged.`, { transient: error.transient });
  const retryAfter = error.retryAfterSeconds;
  return { ...answer, ...(retryAfter !== undefined && { headers: { 'retry-after': retryAfter } }) };
}
