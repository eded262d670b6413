import { cardCredits, prepaid, Speechgate } from 'speechgate/client';
import { privateKeyToAccount } from 'viem/accounts';

// The demo wallet's key is in the page. With real money the wallet is the visitor's own: docs/clients.md, In a browser.
const { baseUrl, creditAccount, wallet, trust } = await (await fetch('sandbox.json')).json();

function byCard(text) {
  const client = new Speechgate({ baseUrl, pay: cardCredits(creditAccount), maxPerRequestMicroUsd: 10_000n });
  return client.speak({ text });
}

async function byPrepaid(text) {
  const client = new Speechgate({ baseUrl, trust, pay: prepaid(privateKeyToAccount(wallet.privateKey)) });
  if ((await client.balance()).balanceMicroUsd < 10_000n) await client.deposit(100_000n);
  return client.speak({ text }, { maxMicroUsd: 10_000n });
}

const [text, output] = ['textarea', 'output'].map((name) => document.querySelector(name));
const audio = document.body.appendChild(new Audio());
audio.controls = true;
audio.autoplay = true;

const usd = (microUsd) => (Number(microUsd) / 1e6).toFixed(6);

async function play(speak) {
  output.textContent = '…';
  try {
    const speech = await speak(text.value);
    const { flow, chargedMicroUsd, balanceMicroUsd } = speech.receipt;
    audio.src = URL.createObjectURL(new Blob([await speech.bytes()], { type: speech.contentType }));
    output.textContent = `${flow}: ${usd(chargedMicroUsd)} USD, ${usd(balanceMicroUsd)} left`;
  } catch (error) {
    output.textContent = `${error.name}: ${error.message}`;
  }
}

document.querySelector('#card').addEventListener('click', () => play(byCard));
document.querySelector('#prepaid').addEventListener('click', () => play(byPrepaid));
