import type { SettleResponse, VerifyResponse } from '@x402/core/types';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Hex } from 'viem';
import {
  type FacilitatorOptions,
  facilitatorApp,
  officialFacilitator,
  type PaymentBody,
  type RunningFacilitator,
  readPayment,
} from '../../src/sandbox/local-facilitator.ts';
import { FacilitatorFaults, type FaultSource, type Misbehaviour, type SettleFault } from './facilitator-faults.ts';

export interface FaultyFacilitatorOptions extends FacilitatorOptions {
  /** The bearer token that callers must show; by default anybody may call. */
  readonly auth?: string;
  readonly faults?: FaultSource;
}

/** One call of `/verify` or `/settle`, in the order of arrival. */
export interface FacilitatorCall extends PaymentBody {
  readonly endpoint: 'verify' | 'settle';
  /** The caller was sent to another path and followed. */
  readonly redirected: boolean;
  /** What the official classes found, whatever was answered; undefined before they are done, or if they weren't asked. */
  result?: VerifyResponse | SettleResponse;
  /** How long they took for that, in milliseconds. */
  tookMs?: number;
  /** A settlement that may still be sent to the chain. */
  isSettling?: boolean;
}

export interface FaultyFacilitator extends RunningFacilitator {
  /** The last calls that were well formed and authorized; at most 1000 of them. */
  readonly calls: readonly FacilitatorCall[];
  /** The last transactions that it has sent, at most 1000, included or not. */
  readonly broadcasts: readonly Hex[];
}

const MEMORY = 1000;
const REDIRECTED = '/elsewhere';

/** The sandbox's facilitator, which remembers its calls and fails as it is told. */
export async function startFaultyFacilitator(options: FaultyFacilitatorOptions): Promise<FaultyFacilitator> {
  const faults: FaultSource = options.faults ?? new FacilitatorFaults();
  const calls: FacilitatorCall[] = [];
  const broadcasts: Hex[] = [];
  const official = officialFacilitator({ ...options, onBroadcast: (sent) => remember(broadcasts, sent) });
  const app = facilitatorApp();
  app.addHook('onRequest', async (request, reply) => {
    if (options.auth === undefined || request.headers.authorization === `Bearer ${options.auth}`) return;
    await reply.code(401).send({ error: 'This facilitator needs its bearer token.' });
  });
  const receive = (endpoint: FacilitatorCall['endpoint'], request: FastifyRequest, redirected: boolean) =>
    remember<FacilitatorCall>(calls, { endpoint, redirected, ...readPayment(request) });
  const execute = async (call: FacilitatorCall) => {
    const askedAt = performance.now();
    const { paymentPayload, paymentRequirements } = call;
    call.result = await official[call.endpoint](paymentPayload, paymentRequirements);
    call.tookMs = performance.now() - askedAt;
    return call.result;
  };

  const verify = (redirected: boolean) => async (request: FastifyRequest, reply: FastifyReply) => {
    const call = receive('verify', request, redirected);
    const fault = redirected ? undefined : await faults.nextVerify(call.paymentPayload);
    if (typeof fault === 'string') return misbehave(fault, request, reply);
    return fault ?? (await execute(call));
  };
  const settle = (redirected: boolean) => async (request: FastifyRequest, reply: FastifyReply) => {
    const call = receive('settle', request, redirected);
    call.isSettling = true;
    let fault: SettleFault | undefined;
    let settled: SettleResponse | undefined;
    try {
      fault = redirected ? undefined : await faults.nextSettle(call.paymentPayload);
      if (fault?.broadcast !== false) settled = (await execute(call)) as SettleResponse;
    } finally {
      call.isSettling = false;
    }
    if (settled?.transaction) await options.persist?.();
    if (!fault) return settled;
    if (typeof fault.answer === 'string') return misbehave(fault.answer, request, reply);
    return reply.code(fault.status ?? 200).send(await fault.answer(settled));
  };
  app.get('/supported', async () => official.getSupported());
  for (const prefix of ['', REDIRECTED]) {
    app.post(`${prefix}/verify`, verify(prefix === REDIRECTED));
    app.post(`${prefix}/settle`, settle(prefix === REDIRECTED));
  }
  const url = await app.listen({ host: '127.0.0.1', port: options.port ?? 0 });
  return { url, calls, broadcasts, close: () => app.close() };
}

/** Adds the entry and forgets the oldest one beyond what is kept. */
function remember<T>(list: T[], entry: T): T {
  list.push(entry);
  if (list.length > MEMORY) list.shift();
  return entry;
}

function misbehave(fault: Misbehaviour, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  if (fault === 'error') return reply.code(500).send({ error: 'The facilitator has failed.' });
  if (fault === 'garbage') return reply.type('text/html').send('<html><body>Welcome</body></html>');
  if (fault === 'redirect') return reply.redirect(`${REDIRECTED}${request.url}`, 307);
  if (fault === 'reset') request.raw.socket.resetAndDestroy();
  return reply.hijack();
}
