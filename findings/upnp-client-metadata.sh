#!/usr/bin/env bash
# upnp-mediarenderer-client 1.4.0: speech is announced as video/mpeg, and a title with é breaks the message.
#
# A loudspeaker chooses by the metadata that comes with a URL, and many refuse what is no audio. load(url) says
# `video/mpeg` whatever the URL is, and no class: give `contentType`, and `metadata` with `type: 'audio'`. What can't be
# mended from outside: upnp-device-client 1.0.2, which sends it, counts Content-Length in characters. Each character of
# a title beyond ASCII cuts bytes off the end of the SOAP message, whose last tag then stays open. Write titles in ASCII.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund upnp-mediarenderer-client@1.4.0 upnp-device-client@1.0.2
cat > run.cjs <<'JS'
const assert = require('node:assert/strict');
const { createServer } = require('node:http');
const { once } = require('node:events');
const { promisify } = require('node:util');
const MediaRenderer = require('upnp-mediarenderer-client');

const service = (name) => `<service>
  <serviceType>urn:schemas-upnp-org:service:${name}:1</serviceType><serviceId>urn:upnp-org:serviceId:${name}</serviceId>
  <SCPDURL>/${name}.xml</SCPDURL><controlURL>/control</controlURL><eventSubURL>/events</eventSubURL></service>`;
const description = `<?xml version="1.0"?><root xmlns="urn:schemas-upnp-org:device-1-0"><device>
  <deviceType>urn:schemas-upnp-org:device:MediaRenderer:1</deviceType><friendlyName>Kitchen</friendlyName>
  <serviceList>${['AVTransport', 'ConnectionManager'].map(service).join('')}</serviceList></device></root>`;
const actions = `<?xml version="1.0"?><scpd xmlns="urn:schemas-upnp-org:service-1-0"><actionList>
  <action><name>SetAVTransportURI</name></action></actionList><serviceStateTable/></scpd>`;

/** The SOAP body as far as its Content-Length goes. */
let received;
const renderer = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  if (request.method === 'POST') received = Buffer.concat(chunks).toString();
  const envelope = '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body/></s:Envelope>';
  response.end(request.method === 'POST' ? envelope : request.url === '/' ? description : actions);
});
// What follows a request that was too short is no request.
renderer.on('clientError', (_error, socket) => socket.destroy());

async function announced(url, options) {
  const { port } = renderer.address();
  received = undefined;
  const client = new MediaRenderer(`http://127.0.0.1:${port}/`);
  await promisify(client.load).call(client, url, options).catch(() => {});
  const [, type] = /http-get:\*:([^:]*):/.exec(received);
  const [, itemClass] = /object\.item\.(\w+)/.exec(received) ?? [];
  return { type, class: itemClass, 'is whole': received.endsWith('</s:Envelope>') };
}

async function main() {
  renderer.listen(0, '127.0.0.1');
  await once(renderer, 'listening');
  const audio = { contentType: 'audio/mpeg', metadata: { type: 'audio', title: 'News' } };
  const titled = { ...audio, metadata: { type: 'audio', title: 'Actualités' } };
  const seen = {
    default: await announced('http://speech.example/1.mp3', {}),
    given: await announced('http://speech.example/1.mp3', audio),
    'with é': await announced('http://speech.example/1.mp3', titled),
  };
  renderer.closeAllConnections();
  renderer.close();
  console.table(seen);
  assert.deepEqual(seen, {
    default: { type: 'video/mpeg', class: undefined, 'is whole': true },
    given: { type: 'audio/mpeg', class: 'audioItem', 'is whole': true },
    'with é': { type: 'audio/mpeg', class: 'audioItem', 'is whole': false },
  });
}
main();
JS
node run.cjs
