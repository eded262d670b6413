/** Serves the page beside it from an origin of its own: `npm install esbuild`, then `node examples/browser/serve.mjs`. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const read = async (name) => JSON.parse(await readFile(`data/${name}.json`, 'utf8'));
const { baseUrl, creditAccount, wallet } = await read('sandbox');
const page = fileURLToPath(new URL('page.js', import.meta.url));
const { outputFiles } = await build({ entryPoints: [page], bundle: true, format: 'esm', write: false });

const files = {
  '/': ['text/html', await readFile(new URL('index.html', import.meta.url))],
  '/page.js': ['text/javascript', outputFiles[0].contents],
  '/sandbox.json': ['application/json', JSON.stringify({ baseUrl, creditAccount, wallet, trust: await read('trust') })],
};

const server = createServer((request, response) => {
  const [type, content] = files[request.url] ?? [];
  response.writeHead(type ? 200 : 404, { 'content-type': type ?? 'text/plain' }).end(content);
});
server.listen(Number(process.env.PORT ?? 8090), '127.0.0.1', () => {
  console.log(`The page is on http://127.0.0.1:${server.address().port}`);
});
