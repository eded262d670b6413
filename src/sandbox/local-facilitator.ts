import { x402Facilitator } from '@x402/core/facilitator';
import { PaymentPayloadV2Schema, PaymentRequirementsV2Schema, z } from '@x402/core/schemas';
import type { PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import type { Hex } from 'viem';
import { isOwnHost } from '../lib/own-host.ts';
import { FacilitatorFaults, type FaultSource, type Misbehaviour } from './facilitator/faults.ts';
import { facilitatorSigner } from './facilitator/signer.ts';

export interface FacilitatorOptions {
  readonly rpcUrl: string;
  readonly chainId: number;
  /** Of the wallet that sends settlements; it needs ether. */
  readonly privateKey: Hex;
  /** Port on 127.0.0.1; by default any that is free. */
  readonly port?: number;
  /** The bearer token that callers must show; by default anybody may call. */
  readonly auth?: string;
  /** Waited for before a settlement is answered: the chain's `persist`. */
  readonly persist?: () => Promise<void>;
  /** How long a transaction may stay out of a block before `settlement_pending` is answered. */
  readonly confirmationTimeoutMs?: number;
  /** What goes wrong on purpose; for tests. */
  readonly faults?: FaultSource;
}

/** One call of `/verify` or `/settle`, in the order of arrival. */
export interface FacilitatorCall {
  readonly endpoint: 'verify' | 'settle';
  readonly paymentPayload: PaymentPayload;
  readonly paymentRequirements: PaymentRequirements;
  /** The caller was sent to another path and followed. */
  readonly redirected: boolean;
  /** What the official classes found, whatever was answered; undefined before they are done, or if they weren't asked. */
  result?: VerifyResponse | SettleResponse;
  /** How long they took for that, in milliseconds. */
  tookMs?: number;
  /** A settlement that may still be sent to the chain. */
  isSettling?: boolean;
}

export interface RunningFacilitator {
  readonly url: string;
  /** The last calls that were well formed and authorized; at most 1000 of them. */
  readonly calls: readonly FacilitatorCall[];
  /** The last transactions that it has sent, at most 1000, included or not. */
  readonly broadcasts: readonly Hex[];
  close(): Promise<void>;
}

const MEMORY = 1000;
const CONFIRMATION_TIMEOUT_MS = 20_000;
const REDIRECTED = '/elsewhere';

const Body = z.object({
  x402Version: z.literal(2),
  paymentPayload: PaymentPayloadV2Schema,
  paymentRequirements: PaymentRequirementsV2Schema,
});

/**
 * Starts an x402 facilitator, version 2 of the protocol and scheme `exact`, for one EVM chain. It listens on an origin
 * of its own: `POST /verify`, `POST /settle`, `GET /supported`. The judgement is that of the official classes.
 */
export async function startFacilitator(options: FacilitatorOptions): Promise<RunningFacilitator> {
  const faults: FaultSource = options.faults ?? new FacilitatorFaults();
  const calls: FacilitatorCall[] = [];
  const broadcasts: Hex[] = [];
  const signer = facilitatorSigner(
    options.rpcUrl,
    options.privateKey,
    options.confirmationTimeoutMs ?? CONFIRMATION_TIMEOUT_MS,
    (transaction) => remember(broadcasts, transaction),
  );
  const official = new x402Facilitator().register(`eip155:${options.chainId}`, new ExactEvmScheme(signer));

  const app = fastify({ bodyLimit: 256 * 1024, forceCloseConnections: true });
  app.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host)) return;
    return reply.code(421).send({ error: 'This facilitator does not go by that host name. Use its address.' });
  });
  app.addHook('onRequest', async (request, reply) => {
    if (options.auth === undefined || request.headers.authorization === `Bearer ${options.auth}`) return;
    await reply.code(401).send({ error: 'This facilitator needs its bearer token.' });
  });
  app.setErrorHandler<Error & { statusCode?: number }>((error, _request, reply) => {
    const status = error.statusCode ?? 500;
    return reply.code(status).send({ error: status < 500 ? error.message : 'The facilitator has failed.' });
  });

  const receive = (endpoint: FacilitatorCall['endpoint'], request: FastifyRequest, redirected: boolean) => {
    const body = Body.safeParse(request.body);
    if (!body.success) return undefined;
    const call = {
      endpoint,
      redirected,
      ...(request.body as Pick<FacilitatorCall, 'paymentPayload' | 'paymentRequirements'>),
    };
    return remember<FacilitatorCall>(calls, call);
  };
  const malformed = (reply: FastifyReply) =>
    reply.code(400).send({ error: 'The body is not {x402Version: 2, paymentPayload, paymentRequirements}.' });

  const verify = (redirected: boolean) => async (request: FastifyRequest, reply: FastifyReply) => {
    const call = receive('verify', request, redirected);
    if (!call) return malformed(reply);
    const fault = redirected ? undefined : await faults.nextVerify(call.paymentPayload);
    if (typeof fault === 'string') return misbehave(fault, request, reply);
    if (fault) return fault;
    const askedAt = performance.now();
    call.result = await official.verify(call.paymentPayload, call.paymentRequirements);
    call.tookMs = performance.now() - askedAt;
    return call.result;
  };

  const settle = (redirected: boolean) => async (request: FastifyRequest, reply: FastifyReply) => {
    const call = receive('settle', request, redirected);
    if (!call) return malformed(reply);
    call.isSettling = true;
    const { fault, settled } = await execute(call, redirected).finally(() => {
      call.isSettling = false;
    });
    if (!fault) return settled;
    if (typeof fault.answer === 'string') return misbehave(fault.answer, request, reply);
    return reply.code(fault.status ?? 200).send(await fault.answer(settled));
  };
  const execute = async (call: FacilitatorCall, redirected: boolean) => {
    const fault = redirected ? undefined : await faults.nextSettle(call.paymentPayload);
    if (fault?.broadcast === false) return { fault };
    const askedAt = performance.now();
    const settled = await official.settle(call.paymentPayload, call.paymentRequirements);
    call.result = settled;
    call.tookMs = performance.now() - askedAt;
    if (settled.transaction) await options.persist?.();
    return { fault, settled };
  };

  app.get('/supported', async () => official.getSupported());
  for (const [prefix, redirected] of [
    ['', false],
    [REDIRECTED, true],
  ] as const) {
    app.post(`${prefix}/verify`, verify(redirected));
    app.post(`${prefix}/settle`, settle(redirected));
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
