/**
 * The sandbox's checkout as a program of its own, on PORT, with its state in DATA_DIR. What its dashboard and the buyers'
 * banks do is asked for on OPERATIONS_PORT: `POST /<operation>` with the arguments as a JSON array.
 */
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import type { Operations } from '../../src/sandbox/checkout/operations.ts';

const { DATA_DIR = '', PORT, OPERATIONS_PORT, SECRET_KEY = '' } = process.env;

const checkout = await startCheckout({ dataDir: DATA_DIR, port: Number(PORT), secretKey: SECRET_KEY });

const { refund, settleRefund, openDispute, updateDispute, endBankPayment } = checkout;
const operations = new Map<string, (...given: never[]) => Promise<unknown>>(
  Object.entries({ refund, settleRefund, openDispute, updateDispute, endBankPayment } satisfies Operations),
);

createServer(async (request, response) => {
  const operation = operations.get(String(request.url).slice(1));
  const [status, answer] = operation
    ? await operation(...((await json(request)) as never[])).then(
        (result) => [200, result] as const,
        (error: Error) => [409, { message: error.message }] as const,
      )
    : ([404, { message: 'There is no such operation.' }] as const);
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
}).listen(Number(OPERATIONS_PORT), '127.0.0.1', () => console.log('sells'));
