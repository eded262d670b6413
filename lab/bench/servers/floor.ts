import Fastify from 'fastify';
import { addFloorRoutes } from './floor-money.ts';

// The floor of the paid flows: what it costs on Fastify, undici and pg to keep the money of a request durably, and
// nothing else. It has no look-up, lease, rate window, audio check, log, metric, price list, chain node or contract.
const app = Fastify({ logger: false });
addFloorRoutes(app);
await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) });
console.log('listens');
