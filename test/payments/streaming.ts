import type { Test } from 'tap';
import type { SpeechConfig } from '../../src/config/speech-settings.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { ControlledStream, type StubUpstream, testUpstream } from '../support/stub-upstream.ts';

export const CENTS = 500;
export const FUNDED = 5_000_000n;
export const PAID = FUNDED - 198n;

export interface Bench {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  readonly account: string;
  readonly drip: ControlledStream;
  speak(): ReturnType<Gateway['call']>;
}

export async function bench(
  t: Test,
  env: Record<string, string> = {},
  {
    databaseUrl,
    leaseSeconds,
    ...streaming
  }: Partial<SpeechConfig['streaming']> & { databaseUrl?: string; leaseSeconds?: number } = {},
): Promise<Bench> {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(
    t,
    { SPEECH_BASE_URL: upstream.url, SPEECH_TIMEOUT_MS: '1000', ...env },
    {
      ...(databaseUrl !== undefined && { databaseUrl }),
      adjust: (config) => ({
        ...config,
        holdLeaseSeconds: leaseSeconds ?? config.holdLeaseSeconds,
        speech: config.speech && { ...config.speech, streaming: { ...config.speech.streaming, ...streaming } },
      }),
    },
  );
  const account = await gateway.fund(CENTS);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const speak = () => gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  return { gateway, upstream, account, drip, speak };
}

export const charge = ({ db }: Gateway) =>
  db.selectFrom('transfer').selectAll().where('kind', '=', 'charge').executeTakeFirstOrThrow();

export const isPending = async (gateway: Gateway) => (await charge(gateway)).state === 'pending';
