import { mostAudioBytes } from './bounded-response.ts';
import { SpeechgateError, UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { faultOf, serviceError } from './service-error.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/**
 * The audio behind a signed link of the service. It is fetched from the client's own origin, whatever name the link has for
 * the service.
 * @throws UntrustedError when it is no link
 * @throws ServiceError when it is not there
 */
export async function fetchAudio(
  link: string,
  receipt: Receipt,
  {
    service,
    pending,
    signal,
  }: { readonly service: Service; readonly pending: PendingPurchase; readonly signal: AbortSignal },
): Promise<Speech> {
  const path = pathOf(link, service.baseUrl) as '/tts/jobs/{jobId}/audio';
  const { response, data, error } = await service.api.GET(path, {
    params: { path: { jobId: '' } },
    parseAs: 'stream',
    mostAudioBytes: mostAudioBytes(pending.body.length),
    signal,
  });
  if (!response.ok) throw serviceError(faultOf(response, error));
  if (!data) throw new SpeechgateError('The answer has no audio.');
  const bytes = await collect(audioStream(response, data as ReadableStream<Uint8Array>));
  return wholeSpeech(bytes, audioType(response), receipt);
}

/** Path and query of a link. @throws UntrustedError when it is no link of the web, or leads out of the origin */
function pathOf(link: unknown, baseUrl: string): string {
  const url = typeof link === 'string' && URL.canParse(link) ? new URL(link) : undefined;
  if (url?.protocol === 'https:' || url?.protocol === 'http:') {
    const path = url.pathname + url.search;
    if (new URL(baseUrl + path).origin === baseUrl) return path;
  }
  throw new UntrustedError('malformed', 'The link to the audio is none. Nothing was fetched.');
}
