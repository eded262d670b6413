import { readFileSync } from 'node:fs';
import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import type { Model } from '../../config/catalog.ts';
import type { Config } from '../../config/config.ts';
import { MAX_TEXT_LENGTH } from '../../config/speech-limits.ts';
import { formatCents, formatDollars } from '../../lib/money.ts';
import { PREPAID } from '../../payments/x402/prepaid-terms.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { type KnownSamples, samplePath } from '../../speech/voice-samples.ts';
import { CLIENT_SCRIPT } from '../pages/client-script.ts';
import { type Html, html } from '../pages/html.ts';
import { type Site, widePage } from '../pages/page.ts';

export type HomeOptions = Site & Pick<Config, 'baseUrl' | 'catalog' | 'speech' | 'card' | 'x402'>;

const EXAMPLE = 'Hello! You are listening to speech that is paid by the character.';

/** The sandbox has an account without real money. Its page shows that to a browser that loads it. */
export interface Sandbox {
  readonly account: string | undefined;
}

export function homePage(options: HomeOptions, samples: KnownSamples, sandbox?: Sandbox) {
  const { catalog, speech, card, x402 } = options;
  const ways = [...(card ? ['from card credit'] : []), ...(x402?.rpcUrls ? ['in USDC'] : [])];
  const models = catalog.models.filter(({ available }) => available);
  const content = html`<p class="lead">Send a text, get an MP3. Pay by the character${ways.length > 0 ? `, ${ways.join(' or ')}` : ''}: no plan,
no sign-up. Speech that fails costs nothing.</p>
<div class="columns">
${speech && models.length > 0 ? speakForm(options, models, samples, sandbox) : html`<p class="notice">Speech is not available here now.</p>`}
${card ? sameRequest(options) : ''}
</div>
<h2 id="prices">Voices and prices</h2>
<div class="ways">
${models.map(modelPanel)}</div>
<p class="hint">1,000 characters are about a minute of speech. A character is a UTF-16 code unit of the trimmed text. A price is
rounded up to a millionth of a dollar.</p>
<h2 id="pay">How to pay</h2>
<div class="ways">
${waysToPay(options)}</div>
<h2>For programs</h2>
<ul>
<li><a href="/openapi.json">/openapi.json</a> is the contract: every field, limit, header, status and error code.</li>
<li><a href="/docs">/docs</a> explains each way to pay step by step. Programs get it as JSON.</li>
<li><a href="/llms.txt">/llms.txt</a> is the short form for agents.</li>
<li><a href="/tts/models">/tts/models</a> lists models, voices and rates.</li>
</ul>`;
  const home = readFileSync(new URL('../pages/home.js', import.meta.url), 'utf8');
  const script = hasWallet(options, sandbox) ? CLIENT_SCRIPT + home : home;
  return widePage('Text to speech, paid per request', content, options, script);
}

const perThousand = ({ ratePicoUsd }: Model): string => formatDollars(priceMicroUsd(1000, ratePicoUsd));
const limitOf = ({ maxInputCharacters }: Model): number => Math.min(maxInputCharacters, MAX_TEXT_LENGTH);

const modelPanel = (model: Model): Html => html`<section class="panel"><h3>${model.name}</h3>
<p>${model.description} Up to ${limitOf(model).toLocaleString('en-US')} characters.</p>
<p><strong>${perThousand(model)}</strong> per 1,000 characters</p>
<p class="hint">${model.voices.map(({ name }) => name).join(', ')}</p></section>
`;

/** The sandbox's chain has the id of a real one: no wallet with real money may sign for it. */
const hasWallet = ({ x402 }: HomeOptions, sandbox: Sandbox | undefined): boolean =>
  x402?.rpcUrls !== undefined && !sandbox;

/** Without script it stays hidden: a form can't send the account's header. */
function speakForm(
  options: HomeOptions,
  models: readonly Model[],
  samples: KnownSamples,
  sandbox: Sandbox | undefined,
): Html {
  const { card, catalog } = options;
  const ways = [
    ...(card ? [['card', 'Card credit']] : []),
    ...(hasWallet(options, sandbox)
      ? [
          ['wallet', 'Wallet (USDC)'],
          ['prepaid', 'Prepaid (USDC)'],
        ]
      : []),
  ] as [value: string, label: string][];
  if (ways.length === 0) return html`<p class="notice">No payment is set up here yet.</p>`;
  const choice = ([value, label]: [string, string], index: number) =>
    html`<label class="choice"><input type="radio" name="way" value="${value}"${index === 0 ? html` checked` : ''}> <span>${label}</span></label>\n`;
  return html`<div><noscript><p class="notice">To try a voice on this page, allow scripts. Requests from programs work without it.</p></noscript>
<form id="speak" class="panel" hidden>
${hasWallet(options, sandbox) ? UNFINISHED : ''}<label for="text">Text</label>
<textarea id="text" rows="5" required aria-describedby="cost">${EXAMPLE}</textarea>
<p id="cost" class="hint"></p>
<label for="voice">Voice</label>
<select id="voice">
${models.map((model) => voiceGroup(model, model === catalog.defaultModel, samples))}</select>
<button type="button" class="plain" id="hear" hidden>Hear this voice, free</button>
${
  ways.length > 1
    ? html`<fieldset>
<legend>Pay with</legend>
${ways.map(choice)}</fieldset>`
    : html`<input type="hidden" name="way" value="card">`
}
${card ? accountField(sandbox?.account) : ''}${hasWallet(options, sandbox) ? WALLET : ''}<button type="submit" id="buy">Speak</button>
<p id="status" role="status"></p>
<audio id="player" controls hidden></audio>
<p id="download" hidden><a download="speech.mp3">Download the audio</a></p>
</form>
<form id="deposit-form"></form></div>`;
}

const [LEAST_DEPOSIT, MOST_DEPOSIT] = [PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd];

const UNFINISHED = html`<div id="unfinished" class="notice" role="status" hidden>
<p></p>
<button type="button" class="plain" id="finish">Finish this payment</button>
</div>
`;

const WALLET = html`<p data-way="wallet" class="hint" hidden>Your wallet signs one USDC payment of exactly this price. It needs no ether, and the payment is final.</p>
<div data-way="prepaid" hidden>
<p id="prepaid-balance" class="hint" role="status">Deposit once. Then your wallet signs each request, without a transaction and without a wait.</p>
<label for="amount">Deposit in US dollars</label>
<input id="amount" form="deposit-form" type="number" inputmode="decimal" value="1" min="${LEAST_DEPOSIT / 1e6}" max="${MOST_DEPOSIT / 1e6}" step="0.01" required aria-describedby="deposit-hint">
<p id="deposit-hint" class="hint">From ${formatDollars(BigInt(LEAST_DEPOSIT))} to ${formatDollars(BigInt(MOST_DEPOSIT))}, in one USDC payment that your wallet signs. A deposit is not paid back.</p>
<button type="submit" form="deposit-form" class="plain" id="deposit">Deposit</button>
</div>
`;

const accountField = (demoAccount = ''): Html => html`<div data-way="card">
${demoAccount === '' ? '' : html`<p class="notice">This is a sandbox. The account below is filled with play money: no real money moves.</p>`}
<label for="account">Account id</label>
<input class="id" id="account" value="${demoAccount}" pattern=" *[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12} *" title="the id that you got when you added credit" required autocomplete="off" autocapitalize="none" spellcheck="false" aria-describedby="balance">
<p id="balance" class="hint">Kept in this tab only. <a href="/top-up">Add credit</a> to get one.</p>
</div>
`;

const voiceGroup = (
  model: Model,
  isDefault: boolean,
  samples: KnownSamples,
): Html => html`<optgroup label="${model.name}, ${perThousand(model)} per 1,000 characters" data-model="${model.id}" data-rate="${String(model.ratePicoUsd)}" data-limit="${limitOf(model)}">
${model.voices.map((voice) => html`<option value="${voice.id}"${isDefault && voice === model.defaultVoice ? html` selected` : ''}${samples.has(model, voice) ? html` data-sample="${samplePath(model, voice)}"` : ''}>${voice.name} · ${model.name}</option>\n`)}</optgroup>
`;

/** The script replaces what is in `data-fill`. Without it, the programs speak the example. */
function sameRequest({ baseUrl, catalog: { defaultModel } }: HomeOptions): Html {
  const json = JSON.stringify({ text: EXAMPLE, model: defaultModel.id, voice: defaultModel.defaultVoice.id });
  const order = html`<span data-fill="json">${json}</span>`;
  const account = html`<span data-fill="account">YOUR_ACCOUNT_ID</span>`;
  const programs: [name: string, program: Html][] = [
    [
      'curl',
      html`curl -f -o speech.mp3 ${baseUrl}/tts \\
  -H 'content-type: application/json' \\
  -H 'x-credit-account: ${account}' \\
  -d <span data-fill="shell">'${json}'</span>`,
    ],
    [
      'JavaScript',
      html`import { writeFile } from 'node:fs/promises';

const response = await fetch('${baseUrl}/tts', {
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'x-credit-account': '${account}',
  },
  body: JSON.stringify(${order}),
});
if (!response.ok) throw new Error(await response.text());
await writeFile('speech.mp3', new Uint8Array(await response.arrayBuffer()));`,
    ],
    [
      'Python',
      html`import json, urllib.request

order = ${order}
request = urllib.request.Request('${baseUrl}/tts', json.dumps(order).encode(), {
    'content-type': 'application/json',
    'x-credit-account': '${account}',
})
with urllib.request.urlopen(request) as response, open('speech.mp3', 'wb') as file:
    file.write(response.read())`,
    ],
  ];
  return html`<section aria-labelledby="programs">
<h2 id="programs">The same request</h2>
${programs.map(
  ([name, program], index) => html`<details${index === 0 ? html` open` : ''}><summary>${name}</summary>
<pre tabindex="0" aria-label="${name}">${program}</pre>
<button type="button" class="plain copy" hidden>Copy ${name}</button>
</details>
`,
)}</section>`;
}

function waysToPay({ card, x402 }: HomeOptions): Html[] {
  const way = (title: string, text: string, link: Html) =>
    html`<section class="panel"><h3>${title}</h3><p>${text}</p><p>${link}</p></section>\n`;
  const onCard = way(
    'Card credit',
    `Buy credit on a hosted checkout, from ${formatCents(MIN_TOP_UP_CENTS)}. Send the account id in x-credit-account to /tts. ` +
      'Each answer says what it cost and what is left.',
    html`<a href="/top-up">Add credit</a>`,
  );
  const direct = way(
    'USDC per request',
    'Send the request to /x402/tts. The 402 has a challenge (x402); sign it with a wallet that holds USDC, and repeat the ' +
      'request. No account. The payment is settled once the audio exists, and is final.',
    html`<a href="/docs#direct-x402">How to pay each request</a>`,
  );
  const [least, most] = [LEAST_DEPOSIT, MOST_DEPOSIT].map((microUsd) => formatDollars(BigInt(microUsd)));
  const prepaid = way(
    'Prepaid USDC',
    `Deposit ${least} to ${most} once, then sign each request. No transaction and no wait per request. A deposit is not paid back.`,
    html`<a href="/docs#prepaid-x402">How to deposit and sign</a>`,
  );
  return [...(card ? [onCard] : []), ...(x402?.rpcUrls ? [direct, prepaid] : [])];
}
