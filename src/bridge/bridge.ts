import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { KeptSpeech } from '../budget/kept-speech.ts';
import { Purchases } from '../budget/purchases.ts';
import { watchLost } from '../budget/watch-lost.ts';
import type { Speechgate } from '../client/index.ts';
import type { Flow } from '../client/pending-purchase.ts';
import { RunningWork } from '../lib/running-work.ts';
import { within } from '../lib/within.ts';
import { admit } from './access.ts';
import { ApiError } from './api-error.ts';
import { Catalog } from './catalog.ts';
import { listModels, listSpeechModels, listVoices, showModel } from './lists.ts';
import { type Fallbacks, modelFor } from './names.ts';
import { answerSpeech, type Call, refuse, type SpeechParts } from './speech-call.ts';
import { toApiError } from './to-api-error.ts';

/** Milliseconds in which a request has to be here. */
const REQUEST_MS = 30_000;
const SPEECH = '/v1/audio/speech';
const MODEL = '/v1/models/';

/** The part of a budget that is kept in a file. */
interface SharedBudget {
  read(): Promise<{ readonly leftMicroUsd: bigint | null }>;
  concludeLost(client: Speechgate, kept?: Pick<KeptSpeech, 'keep'>): Promise<void>;
}

export interface BridgeOptions {
  /** Spends under the budget. */
  readonly client: Speechgate;
  /** The same budget; undefined where the client spends under none. */
  readonly budget: SharedBudget | undefined;
  /** Where purchases go whose audio no program has got, so that it can be asked for after the bridge has ended. */
  readonly kept?: KeptSpeech;
  readonly flow: Flow;
  /** 127.0.0.1 unless given; the bridge answers to names of this machine only. */
  readonly host?: string;
  /** 0 for any that is free. */
  readonly port: number;
  /** What programs have to give as their API key; with null every user of this machine can spend. */
  readonly token: string | null;
  readonly fallbacks?: Fallbacks;
  /** Card credits: by jobs, whose audio can be fetched again. */
  readonly isDurable?: boolean;
  /** Hears of each request for speech, once it is over. */
  readonly onCall?: (call: Call) => void;
}

export interface Bridge {
  /** What programs take as OpenAI's base URL: it ends in /v1. */
  readonly url: string;
  /** Takes no new requests, and waits that long for those that run. */
  close(patienceMs: number): Promise<void>;
}

/** Starts a server that speaks OpenAI's speech API to the programs of this machine, and buys their speech. */
export async function startBridge(options: BridgeOptions): Promise<Bridge> {
  const { client, budget, token, fallbacks = {}, host = '127.0.0.1' } = options;
  const parts: SpeechParts = {
    catalog: new Catalog(client),
    purchases: new Purchases(client, options.isDurable ?? false, options.kept),
    fallbacks,
    flow: options.flow,
    kept: options.kept,
    left: async () => (budget ? (await budget.read()).leftMicroUsd : null),
  };
  const running = new RunningWork();

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      admit(request, token);
      const [path = '', query] = (request.url ?? '').split('?', 2);
      if (request.method === 'POST' && path === SPEECH) {
        const call = await answerSpeech(parts, request, response);
        options.onCall?.(call);
        return;
      }
      const list = request.method === 'GET' ? await read(path, new URLSearchParams(query)) : undefined;
      if (!list) throw notFound(request.method, path);
      response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' });
      response.end(JSON.stringify(list));
    } catch (error) {
      refuse(response, toApiError(error, options.flow));
    }
  }

  async function read(path: string, query: URLSearchParams): Promise<object | undefined> {
    if (path === '/v1/models') return listModels(await parts.catalog.read());
    if (path === '/v1/audio/models') return listSpeechModels(await parts.catalog.read());
    if (path === '/v1/audio/voices') {
      return listVoices(modelFor(await parts.catalog.read(), query.get('model') ?? undefined, fallbacks));
    }
    if (path.startsWith(MODEL)) return showModel(await parts.catalog.read(), decoded(path.slice(MODEL.length)));
    return undefined;
  }

  const server = createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, (request, response) => {
    running.add(answer(request, response));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, host, resolve);
  });
  const conclude = async () => {
    await budget?.concludeLost(client, options.kept).catch(() => {});
    await parts.purchases.conclude();
  };
  const stopWatching = watchLost({ concludeLost: () => running.add(conclude()) }, client);
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${host}:${port}/v1`,
    async close(patienceMs) {
      stopWatching();
      parts.purchases.release();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeIdleConnections();
      await within(patienceMs, running.idle());
      server.closeAllConnections();
      await closed;
    },
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const notFound = (method: string | undefined, path: string): ApiError =>
  new ApiError(
    { status: 404, type: 'invalid_request_error', code: 'unknown_url' },
    `There is no ${method} ${path} here. This bridge speaks: POST ${SPEECH}, GET /v1/audio/voices, GET /v1/models.`,
  );
