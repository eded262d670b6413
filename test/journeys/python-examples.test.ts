import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { recoverAddress } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { PAYMENT_VECTOR, SIGNING_VECTORS } from '../../src/payments/prepaid/prepaid-vectors.ts';
import { PREPAID_TYPES } from '../../src/payments/x402/signed-types.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { detectAudioType } from '../../src/speech/audio-format.ts';
import { testChain } from '../support/chain.ts';
import { startCommand } from '../support/child.ts';
import { pinsOf, startPaidGateway } from '../support/client.ts';
import { mineSteadily } from '../support/deposit.ts';
import { missingProgram } from '../support/missing-program.ts';
import { projectFile } from '../support/project.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const withoutPython = missingProgram('python3', '--version') ?? false;
const { chain, skip } = await testChain();
const EXAMPLES = fileURLToPath(projectFile('examples/python'));
const python = (args: readonly string[]) => ['python3', '-B', ...args];

test('the Python examples buy speech from card credit and from a deposit', {
  skip: withoutPython || skip,
}, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const privateKey = generatePrivateKey();
  const { address } = privateKeyToAccount(privateKey);
  await fund(chain.client, address, { usdc: 100_000n });
  mineSteadily(t, chain);
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'data'));
  const sandbox = { baseUrl: gateway.url, creditAccount: await gateway.fund(500), wallet: { address, privateKey } };
  await writeFile(join(folder, 'data/sandbox.json'), JSON.stringify(sandbox));
  const run = async (example: string, pins: readonly object[] = pinsOf(gateway)) => {
    await writeFile(join(folder, 'data/trust.json'), JSON.stringify(pins));
    const child = startCommand(t, python([join(EXAMPLES, example)]), { cwd: folder });
    return { code: await child.ended(), output: child.output() };
  };
  const [pin] = pinsOf(gateway);
  const [other] = pinsOf(await startPaidGateway(t, chain));
  const { output } = await run('prepaid.py', [{ ...other, keyId: pin?.keyId }]);
  t.match(output, /^The metadata is not valid\.$/m);
  t.equal(await gateway.revenue(), 0n, 'nothing was paid to a service of another key');
  // "Hello world, paid …" at 18 micro-USD per character.
  t.strictSame(await run('card.py'), { code: 0, output: 'card.mp3 630 4999370\n' });
  t.strictSame(await run('prepaid.py'), { code: 0, output: 'prepaid.mp3 594 99406\n' });
  t.equal(await gateway.revenue(), 100_000n);
  t.strictSame(await run('prepaid.py'), { code: 0, output: 'prepaid.mp3 594 98812\n' });
  for (const file of ['card.mp3', 'prepaid.mp3'])
    t.equal(detectAudioType(await readFile(join(folder, file))), 'audio/mpeg');
});

test('the Python signatures match the published vectors', { skip: withoutPython }, async (t) => {
  const { domain, privateKey, address, requests } = SIGNING_VECTORS;
  const { typedData, digest } = PAYMENT_VECTOR;
  const prepaid = requests.map(({ message, digest }) => ({
    domain,
    name: 'PrepaidRequest',
    fields: PREPAID_TYPES.PrepaidRequest,
    message,
    digest,
  }));
  const { primaryType: name, types, message } = typedData;
  const vectors = [...prepaid, { domain: typedData.domain, name, fields: types[name], message, digest }];
  const script = `
import json, sys
from signatures import sign, typed_data_digest
for vector in json.loads(sys.argv[1]):
    fields = [(field["name"], field["type"]) for field in vector["fields"]]
    digest = typed_data_digest(vector["domain"], vector["name"], fields, vector["message"])
    print("0x" + digest.hex(), sign(digest, "${privateKey}"))`;
  const child = startCommand(t, python(['-c', script, JSON.stringify(vectors)]), { cwd: EXAMPLES });
  t.equal(await child.ended(), 0, child.output());
  const lines = child.output().trim().split('\n');
  t.equal(lines.length, vectors.length);
  for (const [at, line] of lines.entries()) {
    const [hash, signature] = line.split(' ') as [`0x${string}`, `0x${string}`];
    t.equal(hash, vectors[at]?.digest);
    t.equal(await recoverAddress({ hash, signature }), address);
  }
});
