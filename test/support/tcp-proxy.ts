import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { Test } from 'tap';

export interface TcpProxy {
  /** The URL of the target, led through the proxy. */
  readonly url: string;
  /** Chunks that the clients of a database have sent, without their farewells: one or more for each statement. */
  readonly sent: number;
  /** Breaks all connections and accepts no new ones. */
  cut(): void;
  /** Keeps all connections, and lets nothing through any more. */
  freeze(): void;
  /** Keeps all connections, and lets nothing through but what the clients send: the server's answers are lost. */
  mute(): void;
  /** Lets everything through again. */
  restore(): void;
  /** Breaks the connection over which the next answer with this text arrives, in its place; resolves when that is done. */
  loseAnswer(text: string): Promise<void>;
}

/** The message of PostgreSQL's protocol with which a client leaves, such as an idle one of a pool. */
const TERMINATE = 'X'.charCodeAt(0);

/** Stands between a client and a server, to take the server away and give it back. */
export async function startTcpProxy(t: Test, target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let sent = 0;
  let state: 'open' | 'cut' | 'frozen' | 'muted' = 'open';
  let toLose: { readonly text: string; readonly lost: () => void } | undefined;
  const server = createServer((client) => {
    if (state === 'cut') return void client.destroy();
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      const isLetThrough = () => state === 'open' || (state === 'muted' && from === client);
      from.on('data', (chunk) => {
        if (from === client && chunk[0] !== TERMINATE) sent += 1;
        if (from === upstream && toLose && chunk.includes(toLose.text)) {
          toLose.lost();
          toLose = undefined;
          client.destroy();
          return;
        }
        if (isLetThrough()) to.write(chunk);
      });
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.on('error', () => {});
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(() => {
    server.close();
    destroyAll();
  });
  const url = new URL(target);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: url.href,
    get sent() {
      return sent;
    },
    cut: () => {
      state = 'cut';
      destroyAll();
    },
    freeze: () => {
      state = 'frozen';
    },
    mute: () => {
      state = 'muted';
    },
    restore: () => {
      if (state === 'frozen' || state === 'muted') destroyAll();
      state = 'open';
    },
    loseAnswer: (text) =>
      new Promise((lost) => {
        toLose = { text, lost };
      }),
  };
}
