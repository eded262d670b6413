import type { Test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

export async function start(t: Test, env: Record<string, string> = {}) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, { worker: true });
  const account = await gateway.fund(500);
  const complete = async (query = '') => {
    const { jobId } = (await later(gateway, account, { query })).json;
    return (await untilJob(gateway, jobId, 'completed')).json;
  };
  return { upstream, gateway, account, complete };
}

export const path = (url: string) => url.slice(url.indexOf('/tts/'));
