/** The script of the page at `/`: speaks a text, paid from a credit account or by a wallet. */
const PICO_PER_MICRO = 1_000_000n;
const RETRY_MS = 2_000;
const MAX_TRIES = 60;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const $ = (id) => document.getElementById(id);
const form = $('speak');
const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits: 6 });
const usd = (microUsd) => dollars.format(Number(microUsd) / 1e6);
const say = (message) => $('status').replaceChildren(message);

/** Kept until this tab is closed; where a browser forbids that, until the page is. */
const kept = (() => {
  try {
    return sessionStorage;
  } catch {
    return {};
  }
})();

async function copy(button) {
  const program = button.previousElementSibling;
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(program.textContent);
    button.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(program);
    button.textContent = 'Selected. Copy it with your keyboard';
  }
  setTimeout(() => {
    button.textContent = label;
  }, 2_000);
}

function start() {
  if ($('account') && !$('account').value) $('account').value = kept.account ?? '';
  form.addEventListener('input', show);
  $('account')?.addEventListener('change', showBalance);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    speak();
  });
  $('hear').addEventListener('click', hear);
  form.hidden = false;
  show();
  if ($('account')?.value) showBalance();
}

const isByWallet = () => form.elements.way.value === 'wallet';
const accountId = () => $('account')?.value.trim() ?? '';

/** What is to be spoken, and its price: characters times rate, rounded up to a whole micro-USD. */
function order() {
  const voice = $('voice').selectedOptions[0];
  const { model, rate, limit } = voice.parentElement.dataset;
  const text = $('text').value.trim();
  const price = (BigInt(text.length) * BigInt(rate) + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
  return {
    body: JSON.stringify({ text, model, voice: voice.value }),
    characters: text.length,
    limit: Number(limit),
    price,
  };
}

function show() {
  const { body, characters, limit, price } = order();
  const isTooLong = characters > limit;
  const count = `${characters.toLocaleString('en-US')} of ${limit.toLocaleString('en-US')} characters`;
  $('cost').textContent = isTooLong ? `${count}. Shorten the text.` : `${count}, ${usd(price)}`;
  $('text').setCustomValidity(characters === 0 ? 'Type a text.' : isTooLong ? 'The text is too long.' : '');
  form.querySelector('[type=submit]').textContent = characters === 0 ? 'Speak' : `Speak for ${usd(price)}`;
  if ($('credit')) {
    $('credit').hidden = isByWallet();
    $('account').required = !isByWallet();
    $('account').disabled = isByWallet();
  }
  $('wallet-hint').hidden = !isByWallet();
  $('hear').hidden = !$('voice').selectedOptions[0].dataset.sample;
  const account = UUID.test(accountId()) ? accountId() : 'YOUR_ACCOUNT_ID';
  const shell = `'${body.replaceAll("'", "'\\''")}'`;
  const fill = { json: body, shell, account };
  for (const element of document.querySelectorAll('[data-fill]')) element.textContent = fill[element.dataset.fill];
}

async function showBalance() {
  const id = accountId();
  if (!UUID.test(id)) return;
  kept.account = id;
  const response = await fetch(`/credits/${id}`).catch(() => undefined);
  if (response?.status === 404)
    return tell('There is no account with this id. Compare it with the one that you were shown.');
  if (!response?.ok) return tell('The balance cannot be read now.');
  const { balanceMicroUsd } = await response.json();
  tellBalance(balanceMicroUsd);
}

const tell = (message) => $('balance').replaceChildren(message);
const tellBalance = (microUsd) => tell(`Balance ${usd(microUsd)}. The id is kept in this tab only.`);

async function speak() {
  const button = form.querySelector('[type=submit]');
  const wanted = order();
  const byWallet = isByWallet();
  button.disabled = true;
  try {
    const response = await (byWallet ? payByWallet(wanted) : payByCard(wanted));
    if (!response.ok) return await explain(response, byWallet);
    const balance = response.headers.get('x-credit-balance');
    say('Speaking…');
    if (balance !== null) tellBalance(balance);
    await play(response);
    say(`Done. You paid ${usd(response.headers.get('x-credit-charged') ?? wanted.price)}.`);
  } catch (error) {
    say(error.message);
    if (!byWallet) await showBalance();
  } finally {
    button.disabled = false;
  }
}

/** Plays the sample of the chosen voice. */
async function hear() {
  const { sample } = $('voice').selectedOptions[0].dataset;
  const buttons = form.querySelectorAll('#hear, [type=submit]');
  for (const button of buttons) button.disabled = true;
  try {
    const response = await fetch(sample).catch(() => undefined);
    if (!response?.ok) return say('This sample cannot be loaded now. Try again later. Nothing was charged.');
    await play(response);
    say('This is a sample. Nothing was charged.');
  } catch (error) {
    say(error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

const post = (path, body, headers = {}) =>
  fetch(path, { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } });

async function payByCard({ body, price }) {
  say('Asking for the audio…');
  const headers = { 'x-credit-account': accountId(), 'x-credit-max-amount': String(price) };
  return post('/tts', body, headers).catch(() => {
    throw new Error('No answer arrived. Look at the balance before you try again.');
  });
}

/** Plays audio while it arrives, where the browser can. At the end it can be downloaded. */
async function play(response) {
  const player = $('player');
  const type = response.headers.get('content-type');
  const chunks = [];
  const source = globalThis.MediaSource?.isTypeSupported(type) ? new MediaSource() : undefined;
  player.hidden = false;
  $('download').hidden = true;
  let buffer;
  if (source) {
    player.src = URL.createObjectURL(source);
    await once(source, 'sourceopen');
    buffer = source.addSourceBuffer(type);
    player.play().catch(() => {});
  }
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new Error('The audio broke off. If the service failed, you were not charged.');
      });
      if (done) break;
      chunks.push(value);
      if (!buffer) continue;
      buffer.appendBuffer(value);
      await once(buffer, 'updateend');
    }
  } finally {
    if (source?.readyState === 'open') source.endOfStream();
  }
  const whole = URL.createObjectURL(new Blob(chunks, { type }));
  if (!source) {
    player.src = whole;
    player.play().catch(() => {});
  }
  const link = $('download').firstElementChild;
  link.href = whole;
  link.download = type === 'audio/wav' ? 'speech.wav' : 'speech.mp3';
  $('download').hidden = false;
}

const once = (target, event) => new Promise((resolve) => target.addEventListener(event, resolve, { once: true }));

const ADVICE = {
  unknown_account: 'There is no account with this id. Nothing was charged.',
  insufficient_funds: 'The balance is lower than the price. Nothing was charged.',
};

async function explain(response, byWallet) {
  const { error, topUpUrl } = await response.json().catch(() => ({}));
  const advice = byWallet ? undefined : ADVICE[error?.details?.reason];
  say(advice ?? error?.message ?? `The service answered ${response.status}.`);
  if (!topUpUrl) return;
  const link = Object.assign(document.createElement('a'), { href: topUpUrl, textContent: 'Add credit' });
  $('status').append(' ', link);
}

/** A signed payment whose outcome is not known. The same order repeats it, and is never charged twice. */
let pending;

async function payByWallet(wanted) {
  if (pending?.body !== wanted.body) {
    const challenged = await post('/x402/tts', wanted.body);
    if (challenged.status !== 402) return challenged;
    pending = { body: wanted.body, signature: await sign(challenged, wanted.price) };
  }
  say('Paying, and waiting for the audio…');
  for (let tries = 1; tries <= MAX_TRIES; tries++) {
    const headers = { 'payment-signature': pending.signature };
    const response = await post('/x402/tts', pending.body, headers).catch(() => undefined);
    if (response && response.status !== 409) {
      const state = response.ok ? 'charged' : (await response.clone().json()).error.details?.payment?.state;
      // Without a state nothing was looked up: only an earlier try may have been charged.
      if (state === undefined ? !pending.mayBePaid : state !== 'unknown') pending = undefined;
      else pending.mayBePaid = true;
      return response;
    }
    pending.mayBePaid = true;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  throw new Error('It is not known yet whether you paid. Press the button again: the same payment is repeated.');
}

const TRANSFER = [
  ['from', 'address'],
  ['to', 'address'],
  ['value', 'uint256'],
  ['validAfter', 'uint256'],
  ['validBefore', 'uint256'],
  ['nonce', 'bytes32'],
];
const DOMAIN = [
  ['name', 'string'],
  ['version', 'string'],
  ['chainId', 'uint256'],
  ['verifyingContract', 'address'],
];
const fields = (list) => list.map(([name, type]) => ({ name, type }));

/** Has the wallet sign the challenge: an EIP-3009 authorization of exactly the price. */
async function sign(challenged, price) {
  const wallet = globalThis.ethereum;
  if (!wallet) throw new Error('No wallet was found in this browser. Install one, or pay with card credit.');
  const { resource, accepts, extensions } = JSON.parse(atob(challenged.headers.get('payment-required')));
  const [offer] = accepts;
  if (BigInt(offer.amount) !== price) throw new Error('The price has changed. Reload this page. Nothing was charged.');
  say('Confirm the payment in your wallet…');
  const chainId = Number(offer.network.split(':')[1]);
  const [from] = await wallet.request({ method: 'eth_requestAccounts' });
  const chain = { chainId: `0x${chainId.toString(16)}` };
  await wallet.request({ method: 'wallet_switchEthereumChain', params: [chain] });
  // By the clock of the service: that of this computer may be wrong.
  const now = Math.floor(Date.parse(challenged.headers.get('date')) / 1000);
  const nonce = crypto.getRandomValues(new Uint8Array(32));
  const authorization = {
    from,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(now + offer.maxTimeoutSeconds),
    nonce: `0x${[...nonce].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`,
  };
  const typed = {
    domain: { ...offer.extra, chainId, verifyingContract: offer.asset },
    types: { EIP712Domain: fields(DOMAIN), TransferWithAuthorization: fields(TRANSFER) },
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  };
  const params = [from, JSON.stringify(typed)];
  const signature = await wallet.request({ method: 'eth_signTypedData_v4', params });
  const identifier = { info: { required: true, id: `pay_${crypto.randomUUID()}` } };
  const payment = {
    x402Version: 2,
    resource,
    accepted: offer,
    payload: { signature, authorization },
    extensions: { 'payment-identifier': { ...extensions['payment-identifier'], ...identifier } },
  };
  return btoa(JSON.stringify(payment));
}

for (const button of document.querySelectorAll('.copy')) {
  button.hidden = false;
  button.addEventListener('click', () => copy(button));
}
if (form) start();
