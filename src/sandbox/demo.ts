/**
 * `npm run demo`: uses a running sandbox as its callers would, each flow once: shows what was paid, and writes the MP3s
 * into DATA_DIR/demo.
 */
import { join } from 'node:path';
import { ownSubfolder } from '../lib/private-files.ts';
import { card } from './demo/card-demo.ts';
import { direct } from './demo/direct-demo.ts';
import { prepaid } from './demo/prepaid-demo.ts';
import { readOffered } from './offered.ts';
import { runningSandbox, usdcParts } from './running-sandbox.ts';
import { dataDir } from './sandbox-file.ts';

const folder = join(dataDir, 'demo');
const sandbox = await runningSandbox();
const usdc = usdcParts(sandbox);
await ownSubfolder(folder);

const offered = await readOffered(sandbox.baseUrl);
await card(sandbox, offered, folder);
if (usdc) {
  await direct(usdc, offered, folder);
  await prepaid(usdc, offered, folder);
} else {
  console.log('Direct and prepaid x402: no chain can run here, so these flows are left out.');
}
