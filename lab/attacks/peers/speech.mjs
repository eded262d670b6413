import { Pool } from 'undici';

/** As the gateway's SPEECH_TIMEOUT_MS. */
const TIMEOUT_MS = 10_000;
const upstream = new Pool(process.env.UPSTREAM_ORIGIN, { headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS });

/** The audio of a text. Throws when the upstream fails, or answers anything but audio. */
export async function speak(text) {
  const { statusCode, headers, body } = await upstream.request({
    method: 'POST',
    path: '/v1/audio/speech',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: text, response_format: 'mp3' }),
  });
  const audio = Buffer.from(await body.arrayBuffer());
  if (statusCode === 200 && headers['content-type']?.startsWith('audio/') && audio.length > 0) return audio;
  throw new Error(`the upstream answered ${statusCode} without audio`);
}

/** The text of a request's body; undefined when there is none. */
export function textIn(body) {
  try {
    const { text } = JSON.parse(body.toString());
    return typeof text === 'string' && text !== '' ? text : undefined;
  } catch {
    return undefined;
  }
}
