import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { silentMp3 } from '../../../test/support/silent-audio.ts';

/** How the speech server treats a text on each request. It waits for a function, then speaks. */
export type Manner = 'error' | 'empty' | 'html' | 'half' | 'reset' | 'hang' | (() => Promise<unknown>);

const AUDIO_MS = 480;
const TAG_BYTES = 32;

export interface Upstream {
  readonly url: string;
  /** Texts without an entry are spoken at once. */
  readonly manners: Map<string, Manner>;
  /** Number of requests for a text. */
  asked(text: string): number;
  close(): void;
}

/** Silence with the text's hash in the last frame, so that the audio identifies its text. */
export function audioOf(text: string): Buffer {
  const audio = silentMp3(AUDIO_MS);
  createHash('sha256')
    .update(text)
    .digest()
    .copy(audio, audio.length - TAG_BYTES);
  return audio;
}

export async function startUpstream(): Promise<Upstream> {
  const manners = new Map<string, Manner>();
  const requests = new Map<string, number>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    if (request.method !== 'POST') {
      response.writeHead(404).end();
      return;
    }
    const { input: text } = JSON.parse(Buffer.concat(chunks).toString()) as { input: string };
    requests.set(text, (requests.get(text) ?? 0) + 1);
    speak(response, audioOf(text), manners.get(text));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    manners,
    asked: (text) => requests.get(text) ?? 0,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

function speak(response: ServerResponse, audio: Buffer, manner: Manner | undefined): void {
  const head = { 'content-type': 'audio/mpeg', 'content-length': audio.length };
  switch (manner) {
    case undefined:
      response.writeHead(200, head).end(audio);
      return;
    case 'error':
      response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":{"message":"failed"}}');
      return;
    case 'empty':
      response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': 0 }).end();
      return;
    case 'html':
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Welcome</title>');
      return;
    case 'half':
      response.writeHead(200, head);
      response.write(audio.subarray(0, audio.length / 2), () => response.destroy());
      return;
    case 'reset':
      response.destroy();
      return;
    case 'hang':
      return;
    default:
      void manner().then(() => response.writeHead(200, head).end(audio));
  }
}
