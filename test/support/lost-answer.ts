import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { BASE_URL, type Call, type Reply, send } from './gateway.ts';
import { requestBytes } from './raw-http.ts';

/** Sends a request on a connection of its own, and reads nothing. */
export async function sendUnread(url: string, path: string, call: Call): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(requestBytes(path, call));
  return socket;
}

/** Has the request answered, and resets the connection then, as the kernel does for a client that dies with bytes unread. */
export async function loseAnswer(url: string, path: string, call: Call): Promise<void> {
  const socket = await sendUnread(url, path, call);
  await once(socket, 'readable');
  socket.resetAndDestroy();
}

/** Fetches what a link of an answer leads to, from where the gateway listens. */
export const follow = (url: string, link: string, call: Call = {}): Promise<Reply> =>
  send(url, link.replace(BASE_URL, ''), call);
