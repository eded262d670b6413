import { serve } from '@hono/node-server';
import { paymentMiddleware } from '@x402/hono';
import { Hono } from 'hono';
import { resourceServer, routes } from './offer.mjs';
import { speak } from './speech.mjs';

const app = new Hono();
app.use(paymentMiddleware(routes, resourceServer));
app.post('/tts', async (c) => {
  const { text } = await c.req.json();
  return c.body(await speak(text), 200, { 'content-type': 'audio/mpeg' });
});

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env.PORT) }, () => console.log('listens'));
