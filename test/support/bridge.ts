import type { Test } from 'tap';
import { type Bridge, type BridgeOptions, startBridge } from '../../src/callers/bridge/bridge.ts';
import type { Call } from '../../src/callers/bridge/speech-call.ts';
import { cardCredits, Speechgate, type SpeechgateOptions } from '../../src/callers/client/index.ts';
import { startCardGateway } from './client.ts';

/** What the text "Hello world" costs in the built-in catalog: 11 characters at 18 micro-USD. */
export const HELLO = 'Hello world';
export const HELLO_MICRO_USD = 198n;

export type BridgeUnderTest = Awaited<ReturnType<typeof openBridge>>;

interface Given {
  readonly cents?: number;
  readonly bridge?: Partial<BridgeOptions>;
  readonly client?: Partial<SpeechgateOptions>;
  /** A new one unless it is given. */
  readonly gateway?: Awaited<ReturnType<typeof startCardGateway>>;
}

/** A bridge of this client that pays by card, without budget and token unless told otherwise. */
export async function bridgeOf(t: Test, client: Speechgate, options: Partial<BridgeOptions> = {}): Promise<Bridge> {
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null, ...options });
  t.teardown(() => bridge.close(1_000));
  return bridge;
}

/** Asks a bridge for Hello world, or what else is told, as programs do. */
export const askBridge = (url: string, order: object = {}, signal: AbortSignal | null = null): Promise<Response> =>
  fetch(`${url}/audio/speech`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO, ...order }),
    signal,
  });

/** A bridge that pays a gateway by card, which asks an upstream that is the test's. */
export async function openBridge(t: Test, given: Given = {}) {
  const gateway = given.gateway ?? (await startCardGateway(t));
  const account = await gateway.fund(given.cents ?? 100);
  const client = new Speechgate({
    ...{ baseUrl: gateway.config.baseUrl, pay: cardCredits(account), timeoutMs: 300 },
    ...given.client,
  });
  /** What became of the requests for speech so far. */
  const calls: Call[] = [];
  const bridge = await bridgeOf(t, client, { onCall: (call) => calls.push(call), ...given.bridge });
  const balance = () => gateway.balance(account);
  return { bridge, origin: new URL(bridge.url).origin, gateway, upstream: gateway.upstream, account, balance, calls };
}
