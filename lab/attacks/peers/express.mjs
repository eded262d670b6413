import { paymentMiddleware } from '@x402/express';
import express from 'express';
import { begin, refused } from './idempotency.mjs';
import { resourceServer, routes } from './offer.mjs';
import { speak, textIn } from './speech.mjs';

const app = express();
app.use(express.raw({ type: () => true }));
app.use((request, response, next) => {
  const header = request.header('payment-signature');
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const { audio, status } = begin({ method: request.method, url: request.originalUrl, body, header });
  if (audio) return response.type('audio/mpeg').send(audio);
  if (status) return response.status(status).set('retry-after', '1').json({ error: 'payment identifier in use' });
  response.once('finish', () => {
    if (header !== undefined && response.statusCode === 402 && !request.isSpoken) refused(header);
  });
  next();
});
app.use(paymentMiddleware(routes, resourceServer));

const sell = (textOf) => async (request, response) => {
  const text = textOf(request);
  if (text === undefined) return response.status(400).json({ error: 'no text' });
  const audio = await speak(text);
  request.isSpoken = true;
  response.type('audio/mpeg').send(audio);
};
const byPost = sell(({ body }) => textIn(body));
const byGet = sell(({ query }) => query.text);
app.post('/x402/tts', byPost).post('/x402/other', byPost).get('/x402/tts', byGet);
app.use((_error, _request, response, _next) => {
  response.status(502).json({ error: 'speech failed' });
});

app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listens'));
