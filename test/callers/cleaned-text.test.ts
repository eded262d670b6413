/** Markup that callers have taken out before they buy: by the command line, the bridge and the MCP server. */
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { t, test } from 'tap';
import { prepaid, Speechgate } from '../../src/callers/client/index.ts';
import { startMcpAgent } from '../support/agent.ts';
import { askBridge, openBridge } from '../support/bridge.ts';
import { prepaidCallerOf } from '../support/caller.ts';
import { callerCommand, startCallerCommand } from '../support/caller-command.ts';
import { listening, pinsOf } from '../support/client.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { openBudget } from './budget/support.ts';

const MARKDOWN = '# Hi 🎉\n\nSee [the docs](https://a.example/x).\n';
const CODE = '```\nx = 1\n```';
const SPOKEN = 'Hi.\nSee the docs.';
const PRICE = 18 * SPOKEN.length;
const gateway = await startPrepaidGateway(t, await listening(), { worker: true });

test('say --clean speaks the words only, and --dry-run shows them and the price', async (t) => {
  const { env, balance } = await prepaidCallerOf(t, gateway, 1_000_000n);
  const folder = await temporaryFolder(t);
  const out = join(folder, 'hi.mp3');
  const clean = ['--clean', 'markdown', '--no-emoji'];
  const shown = await callerCommand(env, 'say', MARKDOWN, ...clean, '--dry-run', '--out', out);
  t.equal(shown.code, 0, shown.err);
  const price = `${SPOKEN.length} characters with provider-a/tts-1: 0.000${PRICE} USD. Nothing was bought.`;
  t.equal(shown.out, `${SPOKEN}\n\n${price}\n`);
  const told = JSON.parse((await callerCommand(env, 'say', MARKDOWN, ...clean, '--dry-run', '--json')).out);
  t.strictSame(told, { text: SPOKEN, model: 'provider-a/tts-1', characters: SPOKEN.length, priceMicroUsd: PRICE });
  const hd = await callerCommand(env, 'say', MARKDOWN, ...clean, '--dry-run', '--model', 'tts-1-hd');
  t.match(hd.out, new RegExp(`: 0\\.000${2 * PRICE} USD\\.`));
  t.strictSame([await balance(), await readdir(folder)], [1_000_000n, []]);
  t.equal(JSON.parse((await callerCommand(env, 'quote', MARKDOWN, ...clean, '--json')).out).amountMicroUsd, PRICE);
  const said = await startCallerCommand(env, ['say', '-', ...clean, '--out', out], MARKDOWN).ended;
  t.equal(said.code, 0, said.err);
  t.equal(gateway.upstream.requests.at(-1)?.body?.input, SPOKEN);
  t.equal(await balance(), 1_000_000n - BigInt(PRICE));
  await callerCommand(env, 'say', MARKDOWN, '--out', out);
  t.equal(gateway.upstream.requests.at(-1)?.body?.input, MARKDOWN.trim(), 'off is the default');
  for (const [text, format, message] of [
    [
      CODE,
      'markdown',
      'The text has no words to speak; markup, code and emoji that --clean or --no-emoji removes do not count. Nothing was bought.',
    ],
    ['Hi', 'md', '--clean must be one of markdown, html, off, not md. Nothing was bought.'],
  ] as const) {
    const refused = await callerCommand(env, 'say', text, '--clean', format, '--out', out);
    t.equal(refused.code, 2);
    t.match(refused.err.split('\n'), [message, /^Usage: speechgate say /]);
  }
});

test('the bridge cleans input when it is told to, and says so', async (t) => {
  for (const [cleaning, header, spoken] of [
    [{ format: 'markdown', emoji: false }, 'markdown, emoji', SPOKEN],
    [{ format: 'off', emoji: false }, 'emoji', '# Hi\nSee [the docs](https://a.example/x).'],
    [{ format: 'off', emoji: true }, null, MARKDOWN.trim()],
    [undefined, null, MARKDOWN.trim()],
  ] as const) {
    const { bridge, upstream, balance } = await openBridge(t, { gateway, bridge: cleaning ? { cleaning } : {} });
    const before = await balance();
    const response = await askBridge(bridge.url, { input: MARKDOWN });
    t.equal(response.status, 200, await response.clone().text());
    t.equal(response.headers.get('x-speechgate-cleaned'), header);
    t.equal(upstream.requests.at(-1)?.body?.input, spoken);
    t.equal(await balance(), before - BigInt(18 * spoken.length), 'only what is spoken is paid');
    if (cleaning?.format !== 'markdown') continue;
    const empty = await askBridge(bridge.url, { input: CODE });
    t.equal(empty.status, 400);
    t.match(await empty.text(), /input has only markup, code or emoji.*Send words to speak\. Nothing was bought\./);
  }
});

test('speechgate bridge takes --clean', async (t) => {
  const { env } = await prepaidCallerOf(t, gateway, 1_000_000n);
  const bridge = startCallerCommand(env, ['bridge', '--port', '0', '--no-token', '--clean', 'html']);
  const [, url] = await bridge.printed(/OPENAI_BASE_URL=(\S+)/);
  const response = await askBridge(`${url}`, { input: '<p>Hello <b>world</b></p>' });
  t.equal(response.headers.get('x-speechgate-cleaned'), 'html', await response.text());
  t.equal(gateway.upstream.requests.at(-1)?.body?.input, 'Hello world');
  await bridge.stop('SIGINT');
});

test('an agent has a text cleaned, and pays for the words only', async (t) => {
  const { wallet, budgetPath } = await prepaidCallerOf(t, gateway, 1_000_000n);
  const budget = await openBudget(t, budgetPath, {});
  const client = new Speechgate({ baseUrl: gateway.url, pay: prepaid(wallet), trust: pinsOf(gateway), budget });
  const { call } = await startMcpAgent(t, dirname(budgetPath), { client, budget, flow: 'prepaid' });
  const args = { text: MARKDOWN, clean: 'markdown', emoji: false };
  t.equal((await call('quote', args)).data.characters, SPOKEN.length);
  const spoken = await call('speak', args);
  t.equal(spoken.data.priceUsd, `0.000${PRICE}`, spoken.text);
  t.equal(gateway.upstream.requests.at(-1)?.body?.input, SPOKEN);
  const empty = await call('speak', { text: CODE, clean: 'markdown' });
  t.strictSame([empty.isError, /^text has only markup, code or emoji/.test(empty.text)], [true, true]);
  const other = await call('speak', { text: 'Hi', clean: 'md' });
  t.match(other.text, /clean must be one of markdown, html, off, not "md"/);
});
