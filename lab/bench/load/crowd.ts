import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Connections that occupy a server but ask little of it. */
export interface Crowd {
  readonly kind: 'crowd';
  readonly port: number;
  /** `idle` sends nothing. `writers` send one byte of a request at intervals. `readers` read responses slowly. */
  readonly manner: 'idle' | 'writers' | 'readers';
  readonly connections: number;
}

export interface CrowdResult {
  readonly open: number;
}

const AT_A_TIME = 200;
const WRITE_EVERY_MS = 1_000;
const READ_EVERY_MS = 250;
const READ_BYTES = 4_096;
const CONTRACT = 'GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n';
const BEGUN =
  'POST /tts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n{"text":"';

let sockets: Socket[] = [];
let timer: NodeJS.Timeout | undefined;

/** Resolves when all are connected. They stay open until `endCrowd`. */
export async function gatherCrowd({ port, manner, connections }: Crowd): Promise<CrowdResult> {
  while (sockets.length < connections) {
    const some = Array.from({ length: Math.min(AT_A_TIME, connections - sockets.length) }, () => open(port, manner));
    sockets.push(...(await Promise.all(some)));
  }
  if (manner === 'writers') timer = setInterval(() => each((socket) => socket.write('a')), WRITE_EVERY_MS);
  if (manner === 'readers') timer = setInterval(() => each((socket) => socket.read(READ_BYTES)), READ_EVERY_MS);
  return { open: stillOpen() };
}

/** Closes them. @returns how many were still open */
export async function endCrowd(): Promise<CrowdResult> {
  const open = stillOpen();
  clearInterval(timer);
  for (const socket of sockets) socket.destroy();
  sockets = [];
  return { open };
}

async function open(port: number, manner: Crowd['manner']): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' });
  socket.on('error', () => {});
  await once(socket, 'connect');
  if (manner === 'writers') socket.write(BEGUN);
  // More than the kernel's buffers hold for a client that does not read.
  if (manner === 'readers') socket.write(CONTRACT.repeat(2));
  return socket;
}

function each(act: (socket: Socket) => void): void {
  for (const socket of sockets) if (!socket.destroyed) act(socket);
}

const stillOpen = (): number => sockets.filter(({ destroyed }) => !destroyed).length;
