import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, isIPv6 } from 'node:net';
import type { TtsModel } from '../../contract/types.ts';
import type { Cleaning } from '../../lib/clean-text.ts';
import { RunningWork } from '../../lib/running-work.ts';
import { within } from '../../lib/within.ts';
import type { BudgetState, FileBudget } from '../budget/file-budget.ts';
import { Purchases, type SavedSpeech, watchLost } from '../budget/purchases.ts';
import type { Flow, Speechgate } from '../client/index.ts';
import { ApiError, invalid, toApiError } from './api-error.ts';
import { Catalog, type Fallbacks, findModel, modelFor } from './catalog.ts';
import { cut } from './deliver.ts';
import { type Call, handleSpeech, refuse, type SpeechCallContext } from './speech-call.ts';

const REQUEST_MS = 30_000;
const SPEECH = '/v1/audio/speech';
const MODEL = '/v1/models/';

interface SharedBudget extends Pick<FileBudget, 'concludeLost'> {
  read(flow: Flow): Promise<Pick<BudgetState, 'leftMicroUsd'>>;
}

export interface BridgeOptions {
  readonly client: Speechgate;
  readonly budget: SharedBudget | undefined;
  /** Stores purchases with undelivered audio, for `speechgate resume` after the bridge has exited. */
  readonly saved?: SavedSpeech;
  readonly flow: Flow;
  /** The address to listen on; default: loopback. */
  readonly host?: string | undefined;
  readonly port: number;
  /** Pages of these origins may use the bridge. */
  readonly allowedOrigins?: readonly string[];
  /** The required API key. With null every user of this machine can spend. */
  readonly token: string | null;
  readonly fallbacks?: Fallbacks;
  /** Default: the input is spoken as it is. */
  readonly cleaning?: Cleaning;
  /** Card credit only: buys jobs, whose audio can be fetched again. False streams the audio. Default: true. */
  readonly isDurable?: boolean;
  readonly onCall?: (call: Call) => void;
}

export interface Bridge {
  /** The value for OPENAI_BASE_URL; it ends in /v1. */
  readonly url: string;
  close(timeoutMs: number): Promise<void>;
}

export async function startBridge(options: BridgeOptions): Promise<Bridge> {
  const { client, budget, saved, flow, fallbacks = {}, cleaning, isDurable = true } = options;
  const isStreamed = flow === 'card' && !isDurable;
  const purchases = new Purchases(client, { isDurable, saved, repeatsLoss: true });
  const catalog = new Catalog(client);
  const readLeftMicroUsd = async () => (budget ? (await budget.read(flow)).leftMicroUsd : null);
  const parts: SpeechCallContext = { catalog, purchases, fallbacks, cleaning, isStreamed, saved, readLeftMicroUsd };
  const running = new RunningWork();

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      if (checkAccess(request, response, options) === 'preflight') return;
      const [path = '', query] = (request.url ?? '').split('?', 2);
      if (request.method === 'POST' && path === SPEECH) {
        const call = await handleSpeech(parts, request, response);
        options.onCall?.(call);
        return;
      }
      const list = request.method === 'GET' ? await read(path, new URLSearchParams(query)) : undefined;
      if (!list) {
        const message = `${request.method} ${path} does not exist. Use POST ${SPEECH}, GET /v1/audio/voices or GET /v1/models. Nothing was bought.`;
        throw invalid(null, message, 'unknown_url', 404);
      }
      response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' });
      response.end(JSON.stringify(list));
    } catch (error) {
      refuse(response, toApiError(error, isStreamed));
    }
  }

  async function read(path: string, query: URLSearchParams): Promise<object | undefined> {
    if (path === '/v1/models') return { object: 'list', data: (await catalog.read()).models.map(toModel) };
    if (path === '/v1/audio/models') {
      return { models: (await catalog.read()).models.map(({ id, name }) => ({ id, name })) };
    }
    if (path === '/v1/audio/voices') {
      const { voices } = modelFor(await catalog.read(), query.get('model') ?? undefined, fallbacks);
      return { voices: voices.map(({ id, voice, name }) => ({ id, name, voice })) };
    }
    if (!path.startsWith(MODEL)) return undefined;
    const model = findModel(await catalog.read(), decoded(path.slice(MODEL.length)));
    if (model) return toModel(model);
    const message = 'The model in the path does not exist. GET /v1/models lists the models. Nothing was bought.';
    throw invalid('model', message, 'model_not_found', 404);
  }

  const open = new Set<ServerResponse>();
  const server = createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, (request, response) => {
    open.add(response);
    response.once('close', () => open.delete(response));
    running.add(handle(request, response));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host ?? LOOPBACK, resolve);
  });
  const resolveOutcome = async () => {
    await budget?.concludeLost(client, saved).catch(() => {});
    await purchases.resolveOutcome();
  };
  const stopWatching = watchLost({ concludeLost: () => running.add(resolveOutcome()) }, client);
  return {
    url: `http://${authorityOf(server.address() as AddressInfo)}/v1`,
    async close(timeoutMs) {
      stopWatching();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeIdleConnections();
      await within(timeoutMs, running.idle());
      purchases.release();
      for (const response of open) cut(response);
      server.closeAllConnections();
      await closed;
    },
  };
}

const toModel = ({ id, provider }: TtsModel): object => ({ id, object: 'model', created: 0, owned_by: provider });

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** This machine reaches a bridge that listens on all of its addresses by the loopback one. */
function authorityOf({ address, port }: AddressInfo): string {
  if (address === '0.0.0.0') return `${LOOPBACK}:${port}`;
  if (!isIPv6(address)) return `${address}:${port}`;
  return `[${address === '::' ? '::1' : address}]:${port}`;
}

const LOOPBACK = '127.0.0.1';
const NAMES = [LOOPBACK, 'localhost', '[::1]'];

/**
 * Refuses web pages of other sites, unless they are allowed: the browser sends their Origin, or their Host after DNS
 * rebinding. A bridge with an address of its own has any name, and a token that such pages don't know.
 */
function checkAccess(
  { method, headers, socket }: IncomingMessage,
  response: ServerResponse,
  { token, host: address, allowedOrigins = [] }: BridgeOptions,
): 'preflight' | undefined {
  const hosts = NAMES.flatMap((name) =>
    socket.localPort === 80 ? [name, `${name}:80`] : [`${name}:${socket.localPort}`],
  );
  const host = headers.host?.toLowerCase() ?? '';
  if (address === undefined && !hosts.includes(host)) {
    throw new ApiError(
      { status: 421, type: 'permission_error', code: 'wrong_host' },
      `The host header is not an address of this bridge. Send the host ${hosts.join(' or ')}. Nothing was bought.`,
    );
  }
  const { origin } = headers;
  const isAllowed = origin !== undefined && allowedOrigins.includes(origin);
  if (isAllowed) {
    response.setHeader('access-control-allow-origin', origin);
    response.setHeader('access-control-expose-headers', '*');
    response.setHeader('vary', 'origin');
  }
  if (isAllowed && method === 'OPTIONS') {
    response.writeHead(204, {
      'access-control-allow-methods': 'GET, POST',
      'access-control-allow-headers': headers['access-control-request-headers'] ?? '',
    });
    response.end();
    return 'preflight';
  }
  const isForeign = !isAllowed && origin !== undefined && origin !== `http://${host}`;
  const site = isAllowed ? undefined : headers['sec-fetch-site'];
  if (isForeign || site === 'cross-site' || site === 'same-site') {
    throw new ApiError(
      { status: 403, type: 'permission_error', code: 'cross_origin' },
      'This web page may not use the bridge. Restart the bridge with --allow-origin and the origin of the page, or use a local program. Nothing was bought.',
    );
  }
  if (token !== null && !isSame(bearerOf(headers.authorization), token)) {
    throw new ApiError(
      { status: 401, type: 'authentication_error', code: 'invalid_api_key' },
      'The API key in the authorization header is missing or wrong. Send the token that the bridge printed as ' +
        'OPENAI_API_KEY, or the one that you chose. Nothing was bought.',
    );
  }
  return undefined;
}

const bearerOf = (authorization = ''): string => /^bearer +(.*)$/i.exec(authorization)?.[1]?.trim() ?? '';

const isSame = (apiKey: string, token: string): boolean => timingSafeEqual(digest(apiKey), digest(token));

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
