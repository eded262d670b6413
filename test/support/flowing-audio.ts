import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { silentMp3 } from './silent-audio.ts';
import type { ControlledStream } from './upstream-answer.ts';

/** Asks for speech that is paid from a card account; tells the answer once its audio flows, which has not ended then. */
export async function askForFlowingAudio(
  url: string,
  account: string,
  drip: ControlledStream,
): Promise<IncomingMessage> {
  const outgoing = request(`${url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  outgoing.end();
  await drip.opened;
  await drip.write(silentMp3(500));
  const [incoming] = await once(outgoing, 'response');
  // A reset in the middle is an error of both.
  outgoing.on('error', () => {});
  return incoming;
}
