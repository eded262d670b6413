import express from 'express';
import { Mppx } from 'mppx/express';
import { evm } from 'mppx/server';
import { speak, textIn } from './speech.mjs';

/** As the gateway waits for a settlement; the package has no limit of its own, and takes a fetch that has one. */
const FACILITATOR_TIMEOUT_MS = 30_000;

const mppx = Mppx.create({
  methods: [
    evm.charge({
      currency: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
      authorization: { name: 'USD Coin', version: '2' },
      chainId: 8453,
      decimals: 6,
      recipient: process.env.PAY_TO,
      x402: {
        facilitator: process.env.FACILITATOR_URL,
        fetch: (url, options) => fetch(url, { ...options, signal: AbortSignal.timeout(FACILITATOR_TIMEOUT_MS) }),
        maxTimeoutSeconds: 120,
      },
    }),
  ],
  realm: 'speech',
  secretKey: 'a-secret-of-the-attacks-of-32-bytes-or-more',
});
const charge = mppx.charge({ amount: process.env.PRICE.slice(1) });

const app = express();
const sell = (textOf) => async (request, response) => {
  const text = textOf(request);
  if (text === undefined) return response.status(400).json({ error: 'no text' });
  response.type('audio/mpeg').send(await speak(text));
};
const byPost = [charge, express.raw({ type: () => true }), sell(({ body }) => textIn(body))];
const byGet = sell(({ query }) => query.text);
app.post('/x402/tts', byPost).post('/x402/other', byPost).get('/x402/tts', charge, byGet);
app.use((_error, _request, response, _next) => {
  response.status(502).json({ error: 'failed' });
});

app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listens'));
