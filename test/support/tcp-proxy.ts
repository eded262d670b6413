import { connect, createServer, type Socket } from 'node:net';
import type { Owner } from './child.ts';
import { serve } from './listening.ts';

export interface TcpProxy {
  /** The URL of the target, led through the proxy. */
  readonly url: string;
  /** Chunks that the clients of a database have sent, one or more for each statement; greetings and farewells don't count. */
  readonly sent: number;
  /** Breaks all connections and accepts no new ones. */
  cut(): void;
  /** Keeps all connections, and lets nothing through any more. */
  freeze(): void;
  /** Keeps all connections, and lets nothing through but what the clients send: the server's answers are lost. */
  mute(): void;
  /** Lets nothing through any more on the connections that there are, and everything on new ones. */
  abandon(): void;
  /** Lets everything through again, and loses no answer any more. */
  restore(): void;
  /** Breaks the connection over which the next answer with this text arrives, in its place; resolves when that is done. */
  loseAnswer(text: string): Promise<void>;
}

/** Messages that come and go with a connection, such as one of a pool: its start, a password, the farewell. */
const OF_CONNECTIONS = new Set(['\0', 'p', 'X']);

/** Tells the messages of clients that belong to no connection's coming and going, and to no statement on these tables. */
function counting(tables: RegExp): (chunk: Buffer) => boolean {
  const names = new Set<string>();
  return (chunk) => {
    const kind = chunk.toString('latin1', 0, 1);
    // A query has its text; a prepared statement has it the first time (P), and is called by its name from then on (B).
    const [first = '', second = ''] = chunk.toString('latin1', 5).split('\0', 2);
    if (kind === 'P' && tables.test(second)) names.add(first);
    const isOnTable = kind === 'Q' ? tables.test(first) : names.has(kind === 'B' ? second : first);
    return !isOnTable && !OF_CONNECTIONS.has(kind);
  };
}

/**
 * Stands between a client and a server, to take the server away and give it back.
 * @param uncounted tables whose statements `sent` does not count, such as those that are asked by the clock
 */
export async function startTcpProxy(t: Owner, target: string, uncounted = /no table/): Promise<TcpProxy> {
  const isCounted = counting(uncounted);
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const abandoned = new Set<Socket>();
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
      const isLetThrough = () => !abandoned.has(client) && (state === 'open' || (state === 'muted' && from === client));
      from.on('data', (chunk) => {
        if (from === client && isCounted(chunk)) sent += 1;
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
  });
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  const url = new URL(target);
  url.host = new URL(await serve(t, server)).host;
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
    abandon: () => {
      for (const socket of sockets) abandoned.add(socket);
    },
    restore: () => {
      if (state === 'frozen' || state === 'muted') destroyAll();
      state = 'open';
      toLose = undefined;
    },
    loseAnswer: (text) =>
      new Promise((lost) => {
        toLose = { text, lost };
      }),
  };
}
