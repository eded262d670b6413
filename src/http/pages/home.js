/**
 * The script of the page at `/`: speaks a text, paid from a credit account, by a wallet, or from its prepaid balance. `client`
 * is what client-script.ts has.
 */
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
  $('deposit-form')?.addEventListener('submit', (event) => {
    event.preventDefault();
    deposit();
  });
  $('finish')?.addEventListener('click', finish);
  form.hidden = false;
  show();
  showPending();
  if ($('account')?.value) showBalance();
}

const chosenWay = () => form.elements.way.value;
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
  $('buy').textContent = characters === 0 ? 'Speak' : `Speak for ${usd(price)}`;
  for (const part of form.querySelectorAll('[data-way]')) {
    part.hidden = part.dataset.way !== chosenWay();
    for (const field of part.querySelectorAll('input')) field.disabled = part.hidden;
  }
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
    return tell('There is no account with this id. Compare it with the id that you got after payment.');
  if (!response?.ok) return tell('The balance cannot be read now. Reload this page to try again.');
  const { balanceMicroUsd } = await response.json();
  tellBalance(balanceMicroUsd);
}

const tell = (message) => $('balance').replaceChildren(message);
const tellBalance = (microUsd) => tell(`Balance ${usd(microUsd)}. The id is kept in this tab only.`);

const speak = () => buy(chosenWay(), order());

function deposit() {
  const price = BigInt(Math.round(Number($('amount').value) * 1e6));
  buy('deposit', { body: `{"amountMicroUsd":${price}}`, price });
}

/** Repeats the signed request that has been pending longest. */
function finish() {
  const [{ way, body, price }] = Object.values(pending());
  buy(way, { body, price: BigInt(price) });
}

async function buy(way, wanted) {
  const pay = async () => {
    const response = way === 'card' ? await payByCard(wanted) : await payOnce(way, wanted);
    if (!response.ok) return await explain(response, way);
    const { headers } = response;
    if (way === 'deposit') {
      tellBalances(null, (await response.json()).balanceMicroUsd);
      say(`Deposited ${usd(wanted.price)}.`);
    } else {
      say('Speaking…');
      tellBalances(headers.get('x-credit-balance'), headers.get('x-x402-balance'));
      await play(response, way === 'card' ? CARD_ENDED : PAYMENT_ENDED);
      say(`Done. You paid ${usd(headers.get('x-credit-charged') ?? headers.get('x-x402-charged') ?? wanted.price)}.`);
    }
    keepPending(way, wanted.body, undefined);
  };
  await whileBusy(pay, way === 'card' ? showBalance : undefined);
  showPending();
}

/** Runs one action at a time, and shows its error. */
async function whileBusy(action, afterError) {
  const buttons = form.querySelectorAll('#hear, #deposit, #buy, #finish');
  for (const button of buttons) button.disabled = true;
  try {
    await action();
  } catch (error) {
    say(error.message);
    await afterError?.();
  }
  for (const button of buttons) button.disabled = false;
}

function tellBalances(credit, prepaid) {
  if (credit !== null) tellBalance(credit);
  if (prepaid !== null) $('prepaid-balance').textContent = `Prepaid balance ${usd(prepaid)}.`;
}

/** Plays the sample of the chosen voice. */
async function hear() {
  const { sample } = $('voice').selectedOptions[0].dataset;
  await whileBusy(async () => {
    const response = await fetch(sample).catch(() => undefined);
    if (!response?.ok) return say('This sample cannot be loaded now. Try again later. Nothing was charged.');
    await play(response, 'The sample ended early. Nothing was charged.');
    say('This is a sample. Nothing was charged.');
  });
}

const post = (path, body, headers = {}) =>
  fetch(path, { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } });

async function payByCard({ body, price }) {
  say('Asking for the audio…');
  const headers = { 'x-credit-account': accountId(), 'x-credit-max-amount': String(price) };
  return post('/tts', body, headers).catch(() => {
    throw new Error('No response arrived, so you may have been charged. Look at the balance before you try again.');
  });
}

const CARD_ENDED =
  'The audio ended early. Look at the balance before you try again: if the service failed, you were not charged.';
const PAYMENT_ENDED =
  'The audio ended early, and you may have paid. Press “Finish this payment”: it sends the same payment again, so you pay at most once.';

/** Plays audio while it arrives, where the browser can. At the end it can be downloaded. */
async function play(response, endedEarly) {
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
        throw new Error(endedEarly);
      });
      if (done) break;
      chunks.push(value);
      if (!buffer) continue;
      try {
        buffer.appendBuffer(value);
        await once(buffer, 'updateend');
      } catch {
        // Its memory is full, or it cannot decode this: the whole is played in the end.
        buffer = undefined;
      }
    }
  } finally {
    if (source?.readyState === 'open') source.endOfStream();
  }
  const whole = URL.createObjectURL(new Blob(chunks, { type }));
  if (!buffer) {
    const { currentTime } = player;
    player.src = whole;
    if (source) player.currentTime = currentTime;
    player.play().catch(() => {});
  }
  const link = $('download').firstElementChild;
  link.href = whole;
  link.download = type === 'audio/wav' ? 'speech.wav' : 'speech.mp3';
  $('download').hidden = false;
}

const once = (target, event) => new Promise((resolve) => target.addEventListener(event, resolve, { once: true }));

const ADVICE = {
  unknown_account: 'There is no account with this id. Check the id, or add credit. Nothing was charged.',
  insufficient_funds: 'The balance is lower than the price. Add credit, or deposit. Nothing was charged.',
  never_deposited: 'This wallet has no prepaid balance. Deposit first. Nothing was charged.',
};

async function explain(response, way) {
  const { error, topUpUrl } = await response.json().catch(() => ({}));
  const advice = way === 'card' || way === 'prepaid' ? ADVICE[error?.details?.reason] : undefined;
  const unexplained = `The service returned status ${response.status} without a message, so you may have been charged. Look at your balance before you try again.`;
  say(advice ?? error?.message ?? unexplained);
  if (!topUpUrl) return;
  const link = Object.assign(document.createElement('a'), { href: topUpUrl, textContent: 'Add credit' });
  $('status').append(' ', link);
}

/** Signed requests whose outcome is unknown, or whose audio is not complete. Repeated, they are never charged twice. */
const pending = () => JSON.parse(kept.pending ?? '{}');

function keepPending(way, body, signed) {
  kept.pending = JSON.stringify({ ...pending(), [`${way} ${body}`]: signed });
}

/** Shows the payment that has been pending longest: this tab may have been reloaded since. */
function showPending() {
  if (!$('unfinished')) return;
  const [first] = Object.values(pending());
  $('unfinished').hidden = !first;
  if (!first) return;
  const { text } = JSON.parse(first.body);
  const what = first.way === 'deposit' ? 'a deposit' : `“${text.length > 60 ? `${text.slice(0, 60)}…` : text}”`;
  $('unfinished').firstElementChild.textContent =
    `You signed a payment of ${usd(first.price)} for ${what}, and its response has not arrived completely. ` +
    'Finish it: the same payment is sent again, so you pay at most once.';
}

const SIGN = {
  wallet: (body, price) => signTransfer({ kind: 'speech', target: '/x402/tts', body }, price),
  prepaid: signPrepaid,
  deposit: (body, price) => signTransfer({ kind: 'deposit', target: '/x402/deposit', body }, price),
};

async function payOnce(way, { body, price }) {
  const earlier = pending()[`${way} ${body}`];
  const signed = earlier ?? (await SIGN[way](body, price));
  if (signed instanceof Response) return signed;
  let mayBePaid = earlier !== undefined;
  keepPending(way, body, { ...signed, way, price: String(price) });
  say('Paying, and waiting for the response…');
  for (let tries = 1; tries <= MAX_TRIES; tries++) {
    const response = await post(signed.target, signed.body, signed.headers).catch(() => undefined);
    const { error } = response?.ok
      ? {}
      : ((await response
          ?.clone()
          .json()
          .catch(() => undefined)) ?? {});
    const { payment, audio } = error?.details ?? {};
    const state = response?.ok ? 'charged' : payment?.state;
    const isKnown = state === 'charged' || state === 'not_charged';
    if (isKnown || (response && response.status !== 409)) {
      if (state === 'charged' && audio) return fetch(audio);
      // Without a state nothing was looked up: only an earlier try may have been charged.
      const isOver = isKnown || response.status === 400 || (state === undefined && !mayBePaid);
      if (isOver && !response.ok) keepPending(way, body, undefined);
      return response;
    }
    mayBePaid = true;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  throw new Error(
    'It is not known yet whether you paid. Press “Finish this payment”: it sends the same payment again, so you pay at most once.',
  );
}

/** By the clock of the service: that of this computer may be wrong. */
const nowMs = (response) => Date.parse(response.headers.get('date'));

/** One USDC transfer of exactly the price. */
async function signTransfer(request, price) {
  const challenged = await post(request.target, request.body);
  if (challenged.status !== 402) return challenged;
  const challenge = JSON.parse(atob(challenged.headers.get('payment-required')));
  const [offer] = challenge.accepts;
  if (BigInt(offer.amount) !== price) throw new Error('The price has changed. Reload this page. Nothing was charged.');
  const wallet = await connect(Number(offer.network.split(':')[1]));
  return client.signPayment(wallet, challenge, offer, { ...request, baseUrl: location.origin }, nowMs(challenged));
}

async function signPrepaid(body, price) {
  const response = await fetch('/.well-known/x402-service-metadata', { cache: 'no-store' });
  if (!response.ok) return response;
  const { payload } = await response.json();
  const wallet = await connect(payload.prepaid.authentication.chainId);
  const call = { method: 'POST', target: '/x402/tts', body, maxMicroUsd: price };
  const hash = (text) => client.keccak256(client.toHex(text));
  const { headers } = await client.signPrepaidRequest(wallet, payload, call, hash, nowMs(response));
  return { target: call.target, body, headers };
}

const EIP712_DOMAIN = [
  ['name', 'string'],
  ['version', 'string'],
  ['chainId', 'uint256'],
  ['verifyingContract', 'address'],
].map(([name, type]) => ({ name, type }));

/** The wallet of this browser (EIP-1193), on the chain of the service. */
async function connect(chain) {
  const { ethereum } = globalThis;
  if (!ethereum)
    throw new Error('No wallet was found in this browser. Install one, or pay another way. Nothing was charged.');
  say('Confirm in your wallet…');
  const [address] = await ethereum.request({ method: 'eth_requestAccounts' });
  const chainId = `0x${chain.toString(16)}`;
  await ethereum.request({ method: 'wallet_switchEthereumChain', params: [{ chainId }] });
  return {
    address,
    signTypedData({ types, ...typed }) {
      const data = { ...typed, types: { EIP712Domain: EIP712_DOMAIN, ...types } };
      const json = JSON.stringify(data, (_, value) => (typeof value === 'bigint' ? String(value) : value));
      return ethereum.request({ method: 'eth_signTypedData_v4', params: [address, json] });
    },
  };
}

for (const button of document.querySelectorAll('.copy')) {
  button.hidden = false;
  button.addEventListener('click', () => copy(button));
}
if (form) start();
