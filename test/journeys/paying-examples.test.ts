/** Examples that pay run at the smallest and the largest amount that their caps and the service allow. */
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { MAX_TEXT_LENGTH } from '../../src/config/speech-limits.ts';
import { PREPAID } from '../../src/payments/x402/prepaid-terms.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { testChain } from '../support/chain.ts';
import { startCommand } from '../support/child.ts';
import { pinsOf, startPaidGateway } from '../support/client.ts';
import { mineSteadily } from '../support/deposit.ts';
import { PROJECT, projectFile } from '../support/project.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const { chain, skip } = await testChain();
const RATE = 18;
/** Of the examples that cap a purchase at 10,000 micro-USD. */
const CAPPED_LENGTH = Math.floor(10_000 / RATE);
const { minDepositMicroUsd, maxDepositMicroUsd } = PREPAID;

type Change = readonly [printed: string, instead: string];
const textOf = (printed: string, length: number): Change => [`text: '${printed}'`, `text: '${'a'.repeat(length)}'`];
const officialCall = (path: string, json: object): Change => {
  const call = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(json) };
  return ['/x402/tts?text=Hello+world`', `${path}\`, ${JSON.stringify(call)}`];
};

/** Each example with its amount changed, and what it prints. */
const RUNS: readonly [example: string, changes: readonly Change[], printed: string][] = [
  ...[1, CAPPED_LENGTH].flatMap((length): (typeof RUNS)[number][] => {
    const printed = `chargedMicroUsd: ${length * RATE}n`;
    return [
      ['card.mjs', [textOf('Hello world, paid from card credit.', length)], printed],
      ['direct.mjs', [textOf('Hello world, paid by a transfer of USDC.', length)], printed],
      ['prepaid.mjs', [textOf('Hello world, paid by a signature.', length)], printed],
    ];
  }),
  [
    'prepaid.mjs',
    [
      ['< 10_000n', `< ${maxDepositMicroUsd}n`],
      ['deposit(100_000n)', `deposit(${maxDepositMicroUsd}n)`],
    ],
    'chargedMicroUsd',
  ],
  ...[1, MAX_TEXT_LENGTH].flatMap((length): (typeof RUNS)[number][] => [
    ['prepaid-by-hand.mjs', [textOf('Hello world', length)], `prepaid-by-hand.mp3 ${length * RATE} `],
    ['x402-official.mjs', [officialCall('/x402/tts', { text: 'a'.repeat(length) })], 'x402.mp3 200 '],
  ]),
  ...[minDepositMicroUsd, maxDepositMicroUsd].map((amountMicroUsd): (typeof RUNS)[number] => [
    'x402-official.mjs',
    [officialCall('/x402/deposit', { amountMicroUsd })],
    'x402.mp3 200 ',
  ]),
];
/** What these runs pay on the chain. */
const ON_CHAIN = (1 + CAPPED_LENGTH + 1 + MAX_TEXT_LENGTH) * RATE + 2 * (minDepositMicroUsd + maxDepositMicroUsd);

test('each example pays the smallest and the largest amount that it may', { skip }, async (t) => {
  // Its name, which is in the domain of prepaid signatures, is known from the signed metadata alone.
  const gateway = await startPaidGateway(t, chain, { SERVICE_NAME: 'unheard-of' });
  const privateKey = generatePrivateKey();
  const { address } = privateKeyToAccount(privateKey);
  await fund(chain.client, address, { usdc: BigInt(ON_CHAIN) });
  mineSteadily(t, chain);
  const folder = await temporaryFolder(t);
  for (const name of ['data', 'node_modules']) await mkdir(join(folder, name));
  await symlink(PROJECT, join(folder, 'node_modules', 'speechgate'));
  for (const name of ['@x402', 'canonicalize', 'viem'])
    await symlink(join(PROJECT, 'node_modules', name), join(folder, 'node_modules', name));
  const sandbox = { baseUrl: gateway.url, creditAccount: await gateway.fund(500), wallet: { address, privateKey } };
  await writeFile(join(folder, 'data/sandbox.json'), JSON.stringify(sandbox));
  await writeFile(join(folder, 'data/trust.json'), JSON.stringify(pinsOf(gateway)));
  const before = await gateway.revenue();
  for (const [at, [example, changes]] of RUNS.entries()) {
    let program = await readFile(projectFile(`examples/${example}`), 'utf8');
    for (const [printed, instead] of changes) {
      t.equal(program.split(printed).length, 2, `${example}: ${printed}`);
      program = program.replace(printed, () => instead);
    }
    await writeFile(join(folder, `${at}.mjs`), program);
  }
  // One process for all: what takes time is the start.
  const main = RUNS.map((_, at) => `console.log('run ${at}'); await import('./${at}.mjs');`).join('\n');
  await writeFile(join(folder, 'main.mjs'), main);
  const child = startCommand(t, [process.execPath, 'main.mjs'], { cwd: folder });
  t.equal(await child.ended(), 0, child.output());
  const outputs = child
    .output()
    .split(/^run \d+$/m)
    .slice(1);
  for (const [at, [example, changes, printed]] of RUNS.entries())
    t.ok(outputs[at]?.includes(printed), `${example} ${String(changes).slice(0, 200)}: ${outputs[at]}`);
  t.equal((await gateway.revenue()) - before, BigInt(ON_CHAIN));
});
