import { SpeechgateError, UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { faultOf, serviceError } from './service-error.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/**
 * The audio behind a signed link of the service. It is fetched from where the client finds the service, by whatever name
 * the link calls that.
 * @throws UntrustedError when it is no link
 * @throws ServiceError when it is not there
 */
export async function fetchAudio(
  link: string,
  receipt: Receipt,
  { service, signal }: { readonly service: Service; readonly signal: AbortSignal },
): Promise<Speech> {
  if (!URL.canParse(link)) throw new UntrustedError('malformed', 'The link to the audio is none.');
  const url = new URL(link);
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
