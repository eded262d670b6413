import { SpeechgateError, UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { faultOf, serviceError } from './service-error.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/**
 * The audio behind a signed link of the service.
 * @throws UntrustedError when it leads elsewhere
 * @throws ServiceError when it is not there
 */
export async function fetchAudio(
  link: string,
  receipt: Receipt,
  { service, signal }: { readonly service: Service; readonly signal: AbortSignal },
): Promise<Speech> {
  const url = URL.canParse(link) ? new URL(link) : undefined;
  if (url?.origin !== service.baseUrl) {
    throw new UntrustedError('wrong_origin', 'The link to the audio leads away from the service.');
  }
  const path = (url.pathname + url.search) as '/tts/jobs/{jobId}/audio';
  const { response, data, error } = await service.api.GET(path, {
    params: { path: { jobId: '' } },
    parseAs: 'stream',
    signal,
  });
  if (!response.ok) throw serviceError(faultOf(response, error));
  if (!data) throw new SpeechgateError('The answer has no audio.');
  const bytes = await collect(audioStream(response, data as ReadableStream<Uint8Array>));
  return wholeSpeech(bytes, audioType(response), receipt);
}
