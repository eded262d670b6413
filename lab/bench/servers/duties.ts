import { randomUUID } from 'node:crypto';
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify';
import { readConfig } from '../../../src/config/config.ts';
import type { OperationResult } from '../../../src/contract/operations.ts';
import { routeOf } from '../../../src/contract/routes.ts';
import { databaseOn, openPool } from '../../../src/db/database.ts';
import { openHolds } from '../../../src/features/holds-feature.ts';
import { openSpeech } from '../../../src/features/speech-feature.ts';
import { openChained } from '../../../src/features/x402-feature.ts';
import { readEdgeHeaders } from '../../../src/http/edge-headers.ts';
import { type OperationContext, operations } from '../../../src/http/operations.ts';
import { EdgeLimiter } from '../../../src/http/plugins/edge-limiter.ts';
import { rateLimits } from '../../../src/http/plugins/rate-limits.ts';
import { RequestRecord } from '../../../src/http/plugins/request-log.ts';
import { serializedBody } from '../../../src/http/reply.ts';
import { createServer } from '../../../src/http/server.ts';
import { KnownPauses } from '../../../src/ledger/pauses.ts';
import { RunningWork } from '../../../src/lib/running-work.ts';
import { createLogger, lineOrigin } from '../../../src/observability/logger.ts';
import { Metrics } from '../../../src/observability/metrics.ts';
import { CardCredits } from '../../../src/payments/card/card-credits.ts';
import { buffered, streamed } from '../../../src/payments/delivery.ts';
import { DirectReplays } from '../../../src/payments/direct/direct-replays.ts';
import { addressKey } from '../../../src/payments/limits/address-key.ts';
import { AttemptLimit, RollingWindow } from '../../../src/payments/limits/rolling-window.ts';
import { DepositReplays } from '../../../src/payments/prepaid/deposits.ts';
import { PrepaidAudioStore, PrepaidBalance, PrepaidReplays } from '../../../src/payments/prepaid/prepaid-balance.ts';
import { PrepaidVerifier } from '../../../src/payments/prepaid/prepaid-credential.ts';
import type { PaymentHold } from '../../../src/payments/speak.ts';
import { findOffer, offersFor, speechResource } from '../../../src/payments/x402/challenge.ts';
import { PaymentLookup, readPaymentHeader } from '../../../src/payments/x402/payment-lookup.ts';
import { openPayments } from '../../../src/payments/x402/resolver.ts';
import { isSignedByPayer } from '../../../src/payments/x402/transfer-proof.ts';
import { placeOrder, utteranceOf } from '../../../src/speech/order.ts';
import { openAudioStore } from '../../../src/speech/store/open-store.ts';
import { AUDIO, CONTRACT, DUTIES, type Duty, type DutyFlow, LEDGER, ORDER, PAYMENT_HEADER } from '../duties.ts';
import { addFloorRoutes, type FloorAnswer, sellByCard, sellInUsdc, synthesize, wholeAudio } from './floor-money.ts';

// The floor of one flow with some of the gateway's duties (DUTIES), each done by the gateway's own code.
const name = process.env.FLOW as DutyFlow;
const duties: readonly Duty[] = DUTIES[name].slice(0, Number(process.env.STEP) + 1);
const has = (duty: Duty) => duties.includes(duty);

const read = readConfig(process.env);
if (read.outcome === 'faulty') throw new Error('the settings are faulty');
const { config } = read;
const metrics = new Metrics();
const log = createLogger(config.logLevel).child(lineOrigin(config));
const db = databaseOn(openPool(config.databaseUrl, { namedStatements: config.namedStatements, byKey: true }));
const limits = new RollingWindow(db, { ...config.rateLimit, livemode: config.card?.livemode }, metrics);
const work = new RunningWork();
const isByCard = name === 'card';
const contract = routeOf(isByCard ? 'createSpeech' : 'createX402Speech');
const sell = isByCard ? sellByCard : sellInUsdc;

const app = has(CONTRACT) ? await serverOfGateway() : await plainServer();
await app.listen({ host: '127.0.0.1', port: config.port });

async function plainServer(): Promise<FastifyInstance> {
  const server: FastifyInstance = Fastify({
    genReqId: has('trace id') ? () => randomUUID() : () => '',
    ...(has('log line') ? { loggerInstance: log as FastifyBaseLogger } : { logger: false }),
    disableRequestLogging: true,
  });
  server.decorateRequest('client');
  server.decorateRequest('record');
  const { plain } = await readEdgeHeaders();
  server.addHook('onRequest', async (request, reply) => {
    request.client = addressKey(request.ip);
    if (has('metrics')) request.record = new RequestRecord(request, reply, metrics);
    if (has('security and CORS headers')) reply.headers(plain);
    if (has('trace id')) reply.header('x-trace-id', request.id);
  });
  if (has('limit by address')) {
    const limiter = await EdgeLimiter.on(server, config.edgeRateLimitMax);
    const windows = { requests: limits, purchases: undefined };
    await server.register(rateLimits, { limiter, windows, failures: new AttemptLimit(limits), metrics });
  }
  addFloorRoutes(server, { contract });
  return server;
}

async function serverOfGateway(): Promise<FastifyInstance> {
  const server = await createServer({
    ...config,
    logger: log,
    longestSynthesisMs: 60_000,
    leaving: new AbortController().signal,
    windows: { requests: limits, purchases: undefined },
    work,
    metrics,
  });
  const operation = openOperation();
  await server.register(operations, { routes: [{ route: contract, operation: operation as never }] });
  return server;
}

interface SpeechRequest {
  readonly headers: Record<string, string>;
  readonly body: { readonly text: string } | { readonly type: string; readonly value: { readonly text: string } };
}

function openOperation() {
  const shared = { config, db, limits, pauses: new KnownPauses(db, log), work, metrics, log };
  const flow = openFlow(shared);
  const { speaking } = openSpeech(shared);
  if (!speaking || !config.x402) throw new Error('the settings lack a flow');
  const { x402, catalog, serviceName, baseUrl } = config;
  const resource = speechResource(baseUrl, serviceName, 'POST');
  const deliver = isByCard ? streamed(speaking) : buffered(speaking);
  const floorSpeech = async (text: string) =>
    isByCard ? { body: await synthesize(text) } : await wholeAudio(text).then((audio) => ({ body: audio, audio }));

  return async ({ headers, body }: SpeechRequest, context: OperationContext): Promise<OperationResult> => {
    const request = 'value' in body ? body.value : body;
    const { method, url, bytes, traceId } = context;
    const sellAtFloor = async () => {
      const onSent = (listener: () => void) => context.response.onEnd(listener);
      return resultOf(await sell({ method, url, headers, bytes, text: request.text.trim(), onSent }));
    };
    if (!has(ORDER)) return sellAtFloor();
    const placed = placeOrder(catalog, request);
    if (placed.outcome === 'refused') throw new Error(placed.message);
    const { text, characters, ratePicoUsd, priceMicroUsd, model } = placed.order;
    const utterance = utteranceOf(placed.order, text);
    const usage = { model: model.id, characters, ratePicoUsd, traceId };
    const offers = isByCard ? [] : offersFor(x402, priceMicroUsd);
    if (!has(LEDGER) && has(PAYMENT_HEADER) && headers['payment-signature'] !== undefined) {
      const shown = readPaymentHeader(headers);
      if (shown.outcome === 'refused') throw new Error(shown.reason);
      const { credential } = shown;
      if (!findOffer(offers, credential.accepted) || !isSignedByPayer(credential, x402.asset))
        throw new Error('refused');
    }
    if (!has(LEDGER) || (name === 'direct' && headers['payment-signature'] === undefined)) return sellAtFloor();

    const slot = isByCard ? { slot: context.rateLimits.pendingSlot(headers['x-credit-account']) } : {};
    const charge = { utterance, priceMicroUsd, usage, request: context, offers, resource, ...slot };
    const shown = flow.credentialOf(headers);
    if (shown.outcome === 'refused') throw new Error(shown.reason);
    const authorized = await flow.authorize(shown.credential as never, charge);
    if (authorized.outcome !== 'held') throw new Error(authorized.outcome);
    const hold: PaymentHold = authorized.hold;
    const lost = new AbortController();
    const endLease = hold.keepLease?.(() => lost.abort());
    const bounds = { timeoutMs: hold.timeoutMs, lost: lost.signal };
    const speech = has(AUDIO) ? await deliver(utterance, bounds) : await floorSpeech(text);
    const audio = 'audio' in speech ? speech.audio : undefined;
    const refusal = audio && (await hold.settle?.(undefined, audio));
    if (refusal) throw new Error(refusal.reason);
    context.response.onEnd(() => void hold.capture(undefined, audio).finally(endLease));
    const spoken = 'mimeType' in speech.body ? speech.body.audio : speech.body;
    return { status: 200, type: 'audio/mpeg', headers: { ...hold.receipt }, body: spoken } as OperationResult;
  };
}

const resultOf = ({ status, headers = {}, body }: FloorAnswer): OperationResult =>
  body ? { status, type: 'audio/mpeg', headers, body } : { status, headers, body: serializedBody({}, '{}') };

function openFlow(shared: Parameters<typeof openHolds>[0]) {
  const parts = openHolds(shared).parts();
  if (isByCard) return new CardCredits(false, limits, parts);
  const { x402 } = config;
  if (!x402?.rpcUrls) throw new Error('the settings lack x402');
  const store = openAudioStore(config.jobs.audioStore);
  if (name === 'prepaid') {
    const verifier = new PrepaidVerifier(config.serviceName, x402.asset, x402.payees);
    const audio = new PrepaidAudioStore({ store, maxBytesPerMinute: config.jobs.prepaidAudioBytes, work });
    return new PrepaidBalance(verifier, new PrepaidReplays(db), audio, parts);
  }
  const opened = openPayments(db, x402.asset, x402.rpcUrls, { metrics, log });
  const lookup = new PaymentLookup({ db, asset: x402.asset, ...opened });
  const directReplays = new DirectReplays({ lookup, store });
  const depositReplays = new DepositReplays(db, lookup);
  return openChained(shared, { ...x402, opened, lookup, directReplays, depositReplays, store }).direct;
}
