import { serve } from '@hono/node-server';
import { paymentMiddleware } from '@x402/hono';
import { Hono } from 'hono';
import { begin, refused } from './idempotency.mjs';
import { resourceServer, routes } from './offer.mjs';
import { speak, textIn } from './speech.mjs';

const AUDIO = { 'content-type': 'audio/mpeg' };
const app = new Hono();
app.use(async (c, next) => {
  const header = c.req.header('payment-signature');
  const body = Buffer.from(await c.req.arrayBuffer());
  const { pathname, search } = new URL(c.req.url);
  const { audio, status } = begin({ method: c.req.method, url: pathname + search, body, header });
  if (audio) return c.body(audio, 200, AUDIO);
  if (status) return c.json({ error: 'payment identifier in use' }, status, { 'retry-after': '1' });
  await next();
  if (header !== undefined && c.res.status === 402 && !c.get('isSpoken')) refused(header);
});
app.use(paymentMiddleware(routes, resourceServer));

const sell = (textOf) => async (c) => {
  const text = await textOf(c.req);
  if (text === undefined) return c.json({ error: 'no text' }, 400);
  const audio = await speak(text);
  c.set('isSpoken', true);
  return c.body(audio, 200, AUDIO);
};
const byPost = sell(async (request) => textIn(Buffer.from(await request.arrayBuffer())));
const byGet = sell((request) => request.query('text'));
app.post('/x402/tts', byPost).post('/x402/other', byPost).get('/x402/tts', byGet);
app.onError((_error, c) => c.json({ error: 'speech failed' }, 502));

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env.PORT) }, () => console.log('listens'));
