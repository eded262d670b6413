import type { Test } from 'tap';
import { ONE_MODEL } from './client.ts';
import { serve } from './listening.ts';

/**
 * Starts a service that has one model and answers nothing else. Returns its address.
 * @param together how many requests for the model must have arrived before the first one is answered
 */
export async function startCatalogServer(t: Test, together = 1): Promise<string> {
  const body = JSON.stringify(ONE_MODEL);
  let arrived = 0;
  let answer = () => {};
  const all = new Promise<void>((resolve) => {
    answer = resolve;
  });
  return serve(t, async (request, response) => {
    const status = request.url === '/tts/models' ? 200 : 404;
    if (status === 200 && ++arrived === together) answer();
    if (status === 200) await all;
    response.writeHead(status, { 'content-type': 'application/json' }).end(status === 200 ? body : '{}');
  });
}
