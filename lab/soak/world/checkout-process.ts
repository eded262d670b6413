/**
 * The sandbox's checkout as a process on PORT, with its state in DATA_DIR. OPERATIONS_PORT takes operations of the
 * dashboard: `POST /<operation>` with the arguments as a JSON array.
 */
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { startCheckout } from '../../../src/sandbox/checkout/checkout-server.ts';
import { operationsOn } from '../../../test/support/checkout.ts';

const { DATA_DIR = '', PORT, OPERATIONS_PORT, SECRET_KEY = '' } = process.env;

const checkout = await startCheckout({ dataDir: DATA_DIR, port: Number(PORT), secretKey: SECRET_KEY });

const operations = new Map<string, (...given: never[]) => Promise<unknown>>(Object.entries(operationsOn(checkout)));

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
