import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { type FloorAnswer, type FloorRequest, sellByCard, sellInUsdc } from './floor-money.ts';

// The floor of the paid flows: what it costs on Fastify, undici and pg to keep the money of a request durably, and
// nothing else. It has no look-up, lease, rate window, audio check, log, metric, price list, chain node or contract.
const schema = { body: { type: 'object', required: ['text'], properties: { text: { type: 'string', minLength: 1 } } } };

const app = Fastify({ logger: false });
app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, bytes, done) => {
  request.bytes = bytes as Buffer;
  done(null, JSON.parse(bytes.toString()));
});
app.decorateRequest('bytes');
app.post('/tts', { schema }, async (request, reply) => send(reply, await sellByCard(requestOf(request, reply))));
app.post('/x402/tts', { schema }, async (request, reply) => send(reply, await sellInUsdc(requestOf(request, reply))));

function requestOf({ method, url, headers, bytes, body }: FastifyRequest, { raw }: FastifyReply): FloorRequest {
  const text = (body as { text: string }).text.trim();
  return {
    method,
    url,
    headers,
    bytes: bytes as Buffer,
    text,
    onSent: (listener) => void raw.once('finish', listener),
  };
}

function send(reply: FastifyReply, { status, headers = {}, body }: FloorAnswer): FastifyReply {
  reply.code(status).headers(headers);
  return body ? reply.type('audio/mpeg').send(body) : reply.send({});
}

await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) });
console.log('listens');
