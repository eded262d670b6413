import { createHash } from 'node:crypto';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { TestChain } from '../../test/support/chain.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import type { FaultyFacilitator } from '../../test/support/faulty-facilitator.ts';
import { body, type Mode, silentMp3, startStubUpstream } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { Plans } from './plans.ts';

const BLOCK_MS = 1_000;
const ETHER = 10_000n * 10n ** 18n;
const TAG_BYTES = 32;

/** Parts that all targets share. They end with the test. */
export interface World {
  readonly t: Test;
  readonly chain: TestChain;
  readonly facilitator: FaultyFacilitator & { readonly plans: Plans };
  /** Ends in `/v1`. */
  readonly upstreamUrl: string;
  /** How the speech server treats a text. Others are spoken at once. */
  readonly manners: Map<string, Mode>;
  readonly folder: string;
}

/** Silence with the text's hash in the last frame, so that the audio identifies its text. */
export function audioOf(text: string): Buffer {
  const audio = Buffer.from(silentMp3(480));
  createHash('sha256')
    .update(text)
    .digest()
    .copy(audio, audio.length - TAG_BYTES);
  return audio;
}

const speak: Mode = (request, response) => body(audioOf(String(request.body?.input)))(request, response);

/** Waits, then speaks. */
export const speakAfter =
  (wait: () => Promise<unknown>): Mode =>
  (request, response) =>
    void wait().then(() => speak(request, response));

/** Starts facilitator and speech server beside a chain. */
export async function openWorld(t: Test, chain: TestChain): Promise<World> {
  mineSteadily(t, chain, BLOCK_MS);
  const plans = new Plans();
  const privateKey = generatePrivateKey();
  const facilitator = await testFacilitator(t, chain, { privateKey, faults: plans });
  await chain.client.setBalance({ address: privateKeyToAccount(privateKey).address, value: ETHER });
  const manners = new Map<string, Mode>();
  const upstream = await startStubUpstream({
    mode: (request, response) => {
      // A run has too many to keep.
      upstream.requests.length = 0;
      (manners.get(String(request.body?.input)) ?? speak)(request, response);
    },
  });
  t.teardown(() => upstream.close());
  const folder = await temporaryFolder(t);
  return { t, chain, facilitator: { ...facilitator, plans }, upstreamUrl: upstream.url, manners, folder };
}
