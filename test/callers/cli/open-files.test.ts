/** Commands close each file that they open, whatever their outcome. */
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { SavedPurchases } from '../../../src/callers/cli/saved-purchases.ts';
import { askBridge } from '../../support/bridge.ts';
import { callerCommand, startCallerCommand } from '../../support/caller-command.ts';
import { testCheckout } from '../../support/checkout.ts';
import { programCommand } from '../../support/child.ts';
import { pinsOf } from '../../support/client.ts';
import { fundedWallet, startPrepaidGateway } from '../../support/prepaid.ts';
import { projectFile } from '../../support/project.ts';
import { speechgate } from '../../support/speechgate.ts';
import { startTamperingProxy } from '../../support/tampering-proxy.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const FOLLOW_FILES = projectFile('test/support/open-files.mjs').href;
const WATCH = { NODE_OPTIONS: `--import=${FOLLOW_FILES}` };
const OPEN_FILE = /^Open FileHandle: .*$/gm;
const CREDITED = { address: '0x1', balanceMicroUsd: 1_000_000, creditedMicroUsd: 1_000_000, alreadyCredited: false };
const OWNER_ONLY = 0o600;
const FOR_ALL = 0o644;
const [DONE, FAILED, USAGE, NO_MONEY] = [0, 1, 2, 3];
const checkout = await testCheckout(t);
const proxy = await startTamperingProxy(t);
const gateway = await startPrepaidGateway(t, { ...checkout.env, BASE_URL: proxy.url }, { worker: true });
proxy.target = gateway.url;
// There is no chain, so the proxy answers paid deposits.
proxy.tamper = (proxied, path, headers) => {
  if (path !== '/x402/deposit' || headers['payment-signature'] === undefined) return;
  Object.assign(proxied, { status: 200, json: CREDITED });
  proxied.headers.set('content-type', 'application/json');
};

// Not before: the checkout keeps a file open.
const files = (await import(FOLLOW_FILES)) as { openFiles(): string[] };
/** Those of the gateway are its own affair. */
const openFiles = () => files.openFiles().filter((file) => !file.includes(gateway.config.dataDir));
const folder = await temporaryFolder(t);
const at = (name: string) => join(folder, name);
const settings = at('settings');
const walletKey = generatePrivateKey();
await fundedWallet(gateway, 1_000_000n, privateKeyToAccount(walletKey));
const account = await gateway.fund(100);
const env = {
  SPEECHGATE_CONFIG_DIR: settings,
  SPEECHGATE_URL: proxy.url,
  SPEECHGATE_ACCOUNT: account,
  SPEECHGATE_WALLET_KEY: walletKey,
  SPEECHGATE_TRUST: JSON.stringify(pinsOf(gateway)),
};
const unreachable = { SPEECHGATE_URL: 'http://127.0.0.1:1' };
const withoutAccount = { SPEECHGATE_ACCOUNT: '', SPEECHGATE_CONFIG_DIR: at('empty') };
const untrusting = { SPEECHGATE_TRUST: '[]' };

await writeFile(at('account'), account, { mode: OWNER_ONLY });
await writeFile(at('account-for-all'), account, { mode: FOR_ALL });
await writeFile(at('invalid.json'), 'no JSON', { mode: OWNER_ONLY });
await mkdir(at('speech'));
await mkdir(at('damaged'), { mode: 0o700 });
await writeFile(at('damaged/budget.jsonl'), 'no budget', { mode: OWNER_ONLY });
for (const identifier of ['first', 'second']) {
  const audio = { contentType: 'audio/mpeg', bytes: Buffer.from('audio') } as const;
  await new SavedPurchases(settings).saveAudio(identifier, audio);
}

type Run = readonly [exitCode: number, args: string, env?: Record<string, string>];

/** Words of the arguments that start with @ are paths in the test's folder. */
const COMMANDS: readonly Run[] = [
  [DONE, `connect ${proxy.url} --account @account`],
  [USAGE, `connect ${proxy.url} --account @account-for-all`],
  [FAILED, 'models', unreachable],
  [USAGE, 'voices --model none'],
  [USAGE, 'quote Hello --model none'],
  [NO_MONEY, 'balance', withoutAccount],
  [DONE, 'budget'],
  [FAILED, 'budget', { SPEECHGATE_CONFIG_DIR: at('damaged') }],
  [DONE, 'verify-metadata'],
  [USAGE, 'verify-metadata', untrusting],
  [DONE, 'feedback send Hello'],
  [FAILED, 'feedback send Hello', unreachable],
  [DONE, 'top-up --no-wait', { SPEECHGATE_URL: gateway.url }],
  [FAILED, 'top-up --no-wait', unreachable],
  [DONE, 'deposit 1.00'],
  [FAILED, 'deposit 1.00', unreachable],
  [DONE, 'say Hello --out @prepaid.mp3 --pay prepaid'],
  [USAGE, 'say Hello --out @none/card.mp3'],
  [NO_MONEY, 'say Hello --out @poor.mp3', { SPEECHGATE_ACCOUNT: crypto.randomUUID() }],
  [DONE, 'resume first --out @first.mp3'],
  [USAGE, 'resume second --out @none/second.mp3'],
  [USAGE, 'bridge --port 0 --model none'],
  [NO_MONEY, 'mcp --folder @speech', withoutAccount],
];

test('no command leaves a file open, whatever its outcome', async (t) => {
  for (const [exitCode, args, more] of COMMANDS) {
    const words = args.split(' ').map((word) => word.replace(/^@/, `${folder}/`));
    const { code, err } = await callerCommand({ ...env, ...more }, ...words);
    t.equal(code, exitCode, `${args}: ${err}`);
    t.strictSame(openFiles(), [], args);
  }
  const left = await open('/dev/null');
  t.match(openFiles().join(), 'Open FileHandle: /dev/null', 'one that is left open is seen');
  await left.close();
});

test('keys leaves no file open', async (t) => {
  for (const [exitCode, file] of [[DONE, 'keys.json'] as const, [FAILED, 'invalid.json'] as const]) {
    const { code, err } = await speechgate({ ...WATCH, SIGNING_KEYS_FILE: at(file) }, 'keys');
    t.equal(code, exitCode, err);
    t.strictSame(err.match(OPEN_FILE), null);
  }
});

test('the bridge leaves no file open after requests and Ctrl-C', async (t) => {
  const bridge = startCallerCommand(env, ['bridge', '--port', '0', '--no-token']);
  const [, url] = await bridge.printed(/OPENAI_BASE_URL=(\S+)/);
  await bridge.printed(/^Paid by /m);
  const statuses = ['alloy', 'alloy/none'].map(async (voice) => {
    const response = await askBridge(`${url}`, { voice });
    await response.arrayBuffer();
    return response.status;
  });
  t.strictSame(await Promise.all(statuses), [200, 400]);
  t.equal((await bridge.stop('SIGINT')).code, DONE);
  t.strictSame(openFiles(), []);
});

test('the MCP server leaves no file open after calls', async (t) => {
  const [command = '', ...args] = programCommand('src/speechgate.ts', 'mcp', '--folder', at('speech'));
  const transport = new StdioClientTransport({ command, args, env: { ...env, ...WATCH }, stderr: 'pipe' });
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(transport);
  const errors = text(transport.stderr as Readable);
  const call = async (voice: string) =>
    (await client.callTool({ name: 'speak', arguments: { text: 'Hello', voice } })).isError ?? false;
  t.strictSame([await call('provider-a_alloy'), await call('none')], [false, true]);
  await client.close();
  t.strictSame((await errors).match(OPEN_FILE), null);
});
