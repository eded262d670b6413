import Fastify from 'fastify';
import { Pool } from 'undici';

// The ceiling for a gateway on Fastify and undici: no validation, payment or limits.
const upstream = new Pool(process.env.UPSTREAM_ORIGIN as string, { connections: 256 });
const app = Fastify({ logger: false });
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

app.post('/v1/audio/speech', async (request, reply) => {
  const { statusCode, headers, body } = await upstream.request({
    method: 'POST',
    path: '/v1/audio/speech',
    headers: { 'content-type': 'application/json' },
    body: request.body as Buffer,
  });
  reply.code(statusCode).header('content-type', headers['content-type']);
  const length = headers['content-length'];
  if (length !== undefined) reply.header('content-length', length);
  return reply.send(body);
});

await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) });
console.log('listens');
