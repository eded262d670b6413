import { x402Facilitator } from '@x402/core/facilitator';
import { PaymentPayloadV2Schema, PaymentRequirementsV2Schema, z } from '@x402/core/schemas';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { type FacilitatorEvmSigner, toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { encodeFunctionData, type Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { isOwnHost } from '../lib/own-host.ts';
import { chainClient } from './chain/chain-client.ts';

export interface OfficialFacilitatorOptions {
  readonly rpcUrl: string;
  readonly chainId: number;
  readonly privateKey: Hex;
  readonly confirmationTimeoutMs?: number;
  readonly onBroadcast?: (transaction: Hex) => void;
}

const CONFIRMATION_TIMEOUT_MS = 20_000;

export function officialFacilitator(options: OfficialFacilitatorOptions): x402Facilitator {
  return new x402Facilitator().register(`eip155:${options.chainId}`, new ExactEvmScheme(signer(options)));
}

/** Pays the gas of settlements. Reads the pending block, because the latest one may be seconds old. */
function signer(options: OfficialFacilitatorOptions): FacilitatorEvmSigner {
  const { confirmationTimeoutMs = CONFIRMATION_TIMEOUT_MS, onBroadcast } = options;
  const client = chainClient(options.rpcUrl);
  const account = privateKeyToAccount(options.privateKey);

  // One at a time, because concurrent transactions would get the same account nonce.
  let last: Promise<unknown> = Promise.resolve();
  const send = (transaction: { to: Hex; data: Hex }): Promise<Hex> => {
    const next = last.then(async () => {
      const gas = await client.estimateGas({ account, ...transaction, blockTag: 'pending' });
      const hash = await client.sendTransaction({ account, ...transaction, gas });
      onBroadcast?.(hash);
      return hash;
    });
    last = next.catch(() => undefined);
    return next;
  };

  return toFacilitatorEvmSigner(
    {
      address: account.address,
      readContract: (call) => client.readContract({ ...call, blockTag: 'pending' }),
      verifyTypedData: (typedData) => client.verifyTypedData(typedData as Parameters<typeof client.verifyTypedData>[0]),
      writeContract: ({ address, abi, functionName, args, dataSuffix }) => {
        const data = encodeFunctionData({ abi, functionName, args });
        return send({ to: address, data: dataSuffix ? `${data}${dataSuffix.slice(2)}` : data });
      },
      sendTransaction: send,
      waitForTransactionReceipt: (wait) => client.waitForTransactionReceipt(wait),
      getCode: (request) => client.getCode(request),
    },
    { confirmationTimeoutMs },
  );
}

export interface FacilitatorOptions extends OfficialFacilitatorOptions {
  readonly port?: number;
  readonly persist?: () => Promise<void>;
}

export interface RunningFacilitator {
  readonly url: string;
  close(): Promise<void>;
}

export async function startFacilitator(options: FacilitatorOptions): Promise<RunningFacilitator> {
  const official = officialFacilitator(options);
  const app = facilitatorApp();
  app.get('/supported', async () => official.getSupported());
  app.post('/verify', async (request) => {
    const { paymentPayload, paymentRequirements } = readPayment(request);
    return official.verify(paymentPayload, paymentRequirements);
  });
  app.post('/settle', async (request) => {
    const { paymentPayload, paymentRequirements } = readPayment(request);
    const settled = await official.settle(paymentPayload, paymentRequirements);
    if (settled.transaction) await options.persist?.();
    return settled;
  });
  const url = await app.listen({ host: '127.0.0.1', port: options.port ?? 0 });
  return { url, close: () => app.close() };
}

export function facilitatorApp(): FastifyInstance {
  const app = fastify({ bodyLimit: 256 * 1024, forceCloseConnections: true });
  app.addHook('onRequest', async (request, reply) => {
    if (isOwnHost(request.headers.host)) return;
    return reply
      .code(421)
      .send({ error: 'The host header is not the address of this local facilitator. Use its IP address.' });
  });
  app.setErrorHandler<Error & { statusCode?: number }>((error, _request, reply) => {
    const status = error.statusCode ?? 500;
    return reply
      .code(status)
      .send({ error: status < 500 ? error.message : 'The local facilitator failed. Try again.' });
  });
  return app;
}

const Body = z.object({
  x402Version: z.literal(2),
  paymentPayload: PaymentPayloadV2Schema,
  paymentRequirements: PaymentRequirementsV2Schema,
});

export interface PaymentBody {
  readonly paymentPayload: PaymentPayload;
  readonly paymentRequirements: PaymentRequirements;
}

export function readPayment({ body }: FastifyRequest): PaymentBody {
  if (Body.safeParse(body).success) return body as PaymentBody;
  const message = 'The body must be {x402Version: 2, paymentPayload, paymentRequirements}.';
  throw Object.assign(new Error(message), { statusCode: 400 });
}
