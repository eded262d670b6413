import { paymentMiddleware } from '@x402/express';
import express from 'express';
import { resourceServer, routes } from './offer.mjs';
import { speak } from './speech.mjs';

const app = express();
app.use(paymentMiddleware(routes, resourceServer));
app.post('/tts', express.json(), async (request, response) => {
  response.type('audio/mpeg').send(await speak(request.body.text));
});

app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listens'));
