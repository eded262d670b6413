import assert from 'node:assert/strict';
import { connectRaw, requestBytes } from './raw-http.ts';
import { ControlledStream, type StubUpstream, silentMp3 } from './stub-upstream.ts';

/** A stream of Hello world, paid from the account, that the provider breaks off; tells its trace id. */
export async function breakStream(url: string, account: string, upstream: StubUpstream): Promise<string> {
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const { socket, answers } = await connectRaw(url);
  answers.catch(() => {});
  const head = new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(bytes.toString('latin1'))));
  const speech = { method: 'POST', json: { text: 'Hello world' }, headers: { 'x-credit-account': account } };
  socket.write(requestBytes('/tts', speech));
  await drip.opened;
  await drip.write(silentMp3(1000));
  const traceId = /^x-trace-id: (\S+)/m.exec(await head)?.[1] ?? assert.fail('the answer has no trace id');
  drip.reset();
  return traceId;
}
