import type { Expected } from './load/connection.ts';
import type { Plan } from './load/requests.ts';
import { planOf, type Row } from './rows.ts';
import type { Setup } from './setup.ts';
import { challengeIn, takeSample } from './targets/sample.ts';
import { AUDIO_BYTES } from './world.ts';

/** What is sent for a row, and what every answer has to be. */
export interface Prepared {
  readonly plan: Plan;
  readonly expected: Expected;
}

/** Learns from the row's target what to send, and starts the prebuilt answer. Throws where a challenge does not come. */
export async function prepare(setup: Setup, row: Row): Promise<Prepared> {
  const { port, program } = setup.target(row.target, row.processes);
  const plan = planOf(row, `http://127.0.0.1:${setup.stubs.upstream}`);
  const audio = { status: 200, bytes: AUDIO_BYTES };
  if (row.work !== 'challenge' && row.work !== 'paid') return { plan, expected: audio };
  if (row.target === 'prebuilt') {
    program.send(await takeSample(setup.target('ours').port, plan));
    await program.listens(port);
  }
  const sample = await takeSample(port, plan);
  const challenge = challengeIn(sample);
  if (row.work === 'paid') return { plan: { ...plan, payment: { by: 'direct', challenge } }, expected: audio };
  return { plan, expected: { status: 402, bytes: Buffer.from(sample.body, 'base64').length } };
}
