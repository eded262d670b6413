import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import Fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { isOwnHost } from '../../lib/own-host.ts';
import { exchange } from './chain-client.ts';

/** Enough for wallets, facilitators and the gateway: reads, and signed transactions. */
const METHODS = new Set([
  ...['eth_blockNumber', 'eth_call', 'eth_chainId', 'eth_estimateGas', 'eth_feeHistory', 'eth_gasPrice'],
  ...['eth_getBalance', 'eth_getBlockByHash', 'eth_getBlockByNumber', 'eth_getCode', 'eth_getLogs'],
  ...['eth_getRawTransactionByHash', 'eth_getStorageAt', 'eth_getTransactionByHash', 'eth_getTransactionCount'],
  ...['eth_getTransactionReceipt', 'eth_maxPriorityFeePerGas', 'eth_sendRawTransaction', 'net_version'],
]);
const BODY_LIMIT_BYTES = 512 * 1024;
const ANSWER_TIMEOUT_MS = 30_000;
const INVALID_REQUEST = -32600;
const METHOD_NOT_FOUND = -32601;
const INTERNAL_ERROR = -32603;
const SECRET = /^[\w-]{43}$/;

/** The RPC address for programs. Web pages cannot use it: they send their origin and do not know the path. */
export async function startRpcProxy(
  socketPath: string,
  port: number,
  formerUrl: string | undefined,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const path = `/${secretOf(formerUrl) ?? randomBytes(32).toString('base64url')}`;
  const app = Fastify({ bodyLimit: BODY_LIMIT_BYTES, forceCloseConnections: true, exposeHeadRoutes: false });
  admitPrograms(app, path);

  app.post('/*', async (request, reply) => {
    const calls = [request.body].flat();
    if (calls.length === 0 || !calls.every(isCall)) {
      return refuse(reply, 400, INVALID_REQUEST, 'The body must be a JSON-RPC request.');
    }
    const refused = calls.find(({ method }) => !METHODS.has(method));
    if (refused) {
      const message = `The method ${refused.method} is not allowed. Use a method that reads, or eth_sendRawTransaction.`;
      return refuse(reply, 403, METHOD_NOT_FOUND, message, refused.id);
    }
    // Forwards the checked members only, because anvil could read a duplicate member differently.
    const checked = calls.map(({ id, method, params }) => ({ jsonrpc: '2.0', id, method, params }));
    const answer = await exchange(socketPath, Array.isArray(request.body) ? checked : checked[0], ANSWER_TIMEOUT_MS);
    return reply.type('application/json').send(answer);
  });

  const origin = await app.listen({ host: '127.0.0.1', port });
  return { url: `${origin}${path}`, close: () => app.close() };
}

function admitPrograms(app: FastifyInstance, path: string): void {
  const expected = sha256(path);
  app.addHook('onRequest', async (request, reply) => {
    const { host, origin } = request.headers;
    if (!isOwnHost(host))
      return refuse(reply, 421, INVALID_REQUEST, 'The host header is not the address of the local chain. Use rpcUrl.');
    if (origin !== undefined)
      return refuse(reply, 403, INVALID_REQUEST, 'Web pages must not use the local chain. Call it from a program.');
    const isKnown = timingSafeEqual(sha256(request.url), expected);
    if (!isKnown) return refuse(reply, 404, INVALID_REQUEST, 'This path does not exist. Use rpcUrl of sandbox.json.');
  });
  app.setNotFoundHandler((_request, reply) =>
    refuse(reply, 405, INVALID_REQUEST, 'The method is not supported. Send JSON-RPC with POST.'),
  );
  app.setErrorHandler<Error & { statusCode?: number }>((error, _request, reply) => {
    const { statusCode = 502, message } = error;
    if (statusCode < 500) return refuse(reply, statusCode, INVALID_REQUEST, message);
    return reply.code(statusCode).send({ jsonrpc: '2.0', id: null, error: { code: INTERNAL_ERROR, message } });
  });
}

const sha256 = (text: string) => createHash('sha256').update(text).digest();

const secretOf = (url: string | undefined): string | undefined => {
  const secret = url !== undefined && URL.canParse(url) ? new URL(url).pathname.slice(1) : '';
  return SECRET.test(secret) ? secret : undefined;
};

const isCall = (call: unknown): call is { id?: unknown; method: string; params?: unknown } =>
  typeof call === 'object' && call !== null && 'method' in call && typeof call.method === 'string';

function refuse(reply: FastifyReply, status: number, code: number, message: string, id: unknown = null): FastifyReply {
  const error = { code, message: `${message} Nothing was sent to the chain.` };
  return reply.code(status).send({ jsonrpc: '2.0', id, error });
}
