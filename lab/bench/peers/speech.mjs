import { Pool } from 'undici';

const upstream = new Pool(process.env.UPSTREAM_ORIGIN, { connections: 256 });

/** The audio of a text, with the cheapest HTTP client there is. */
export async function speak(text) {
  const { statusCode, body } = await upstream.request({
    method: 'POST',
    path: '/v1/audio/speech',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: text, response_format: 'mp3' }),
  });
  const audio = Buffer.from(await body.arrayBuffer());
  if (statusCode !== 200) throw new Error(`the upstream answered ${statusCode}`);
  return audio;
}
