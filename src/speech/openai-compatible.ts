import { Pool } from 'undici';
import { SPEED } from './limits.ts';
import type { SpeechProvider } from './provider.ts';
import { StaleSocketRetryClient } from './stale-socket-retry.ts';
import { exchange } from './upstream-exchange.ts';

/** Where an OpenAI-compatible speech service is, and how to use it. */
export interface OpenAiCompatibleOptions {
  /** Absolute http or https URL that ends in `/v1`; speech is asked for at `{baseUrl}/audio/speech`. */
  baseUrl: string;
  /** Sent as a bearer token when set. */
  apiKey?: string;
  /** Longest wait for the first audio, the wait for a connection included. */
  firstByteTimeoutMs: number;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Beyond it requests queue, which counts towards their first-byte timeout. */
const MAX_CONNECTIONS = 1024;
/** What is read of a list of models; beyond it the connection is cut. */
const MAX_PROBE_BYTES = 64 * 1024;

/**
 * A provider that speaks OpenAI's `POST /audio/speech`, over kept-alive HTTP/1.1 connections to one origin.
 *
 * @throws TypeError when baseUrl is no URL
 */
export function openAiCompatible(options: OpenAiCompatibleOptions): SpeechProvider {
  const base = new URL(options.baseUrl);
  const pathOf = (resource: string) => `${base.pathname.replace(/\/+$/, '')}/${resource}${base.search}`;
  const path = pathOf('audio/speech');
  const identity = ['user-agent', 'speechgate'];
  if (options.apiKey) identity.push('authorization', `Bearer ${options.apiKey}`);
  const headers = ['content-type', 'application/json', ...identity];
  const { firstByteTimeoutMs } = options;
  const pool = new Pool(base.origin, {
    connections: MAX_CONNECTIONS,
    connectTimeout: CONNECT_TIMEOUT_MS,
    // An exchange has timeouts of its own, which are exact and include the time until a connection is there.
    headersTimeout: 0,
    bodyTimeout: 0,
    factory: (origin, clientOptions) => new StaleSocketRetryClient(origin, clientOptions),
  });
  let closing: Promise<void> | undefined;

  return {
    synthesize({ text, model, voice, speed }, signal, firstByteMs = firstByteTimeoutMs) {
      const pace = speed === SPEED.default ? {} : { speed };
      const body = JSON.stringify({ model, input: text, voice, ...pace, response_format: 'mp3' });
      const limits = { signal, firstByteTimeoutMs: Math.min(firstByteMs, firstByteTimeoutMs) };
      return exchange(pool, { method: 'POST', path, headers, body }, limits);
    },
    async probe(signal) {
      const answer = await pool.request({ method: 'GET', path: pathOf('models'), headers: identity, signal });
      await answer.body.dump({ limit: MAX_PROBE_BYTES, signal });
      return answer.statusCode < 500 && answer.statusCode !== 429;
    },
    close() {
      closing ??= pool.close();
      return closing;
    },
  };
}
