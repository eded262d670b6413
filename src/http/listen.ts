import { once } from 'node:events';
import { chmod, lstat, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { isSocketPath } from '../config/edge-settings.ts';

interface Listener {
  readonly server: FastifyInstance;
  readonly host: string;
  readonly port: number;
  /** Names of the settings, for people. */
  readonly settings: { readonly host: string; readonly port: string };
}

/** For the user of the service, and for the proxy by its group. */
const SOCKET_MODE = 0o660;

/** @returns what is wrong with the settings, or undefined once it listens */
export async function listen({ server, host, port, settings }: Listener): Promise<string | undefined> {
  try {
    if (isSocketPath(host)) await listenOnSocket(server, host);
    else await server.listen({ host, port });
    return undefined;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (isSocketPath(host))
      return `${settings.host} ${host} can't be opened as a socket (${code}). Stop the program that listens there, remove another file of that name, or let this user write to the folder, which must exist.`;
    if (code === 'EADDRINUSE')
      return `${settings.port} ${port} is in use on ${host}. Stop the program that listens there, or set another port.`;
    if (code === 'EACCES')
      return `${settings.port} ${port} is a port that this user may not open. Set a port from 1024 on, or give the user that right.`;
    if (['EADDRNOTAVAIL', 'EINVAL', 'ENOTFOUND', 'EAI_AGAIN'].includes(code))
      return `${settings.host} ${host} can't be used as an address of this machine (${code}). Set it to one, or to 0.0.0.0 for all.`;
    throw error;
  }
}

async function listenOnSocket(server: FastifyInstance, path: string): Promise<void> {
  // A stop removes its socket. A killed process leaves it.
  if (await isAbandoned(path)) await rm(path);
  await server.listen({ path });
  await chmod(path, SOCKET_MODE);
}

async function isAbandoned(path: string): Promise<boolean> {
  const isSocket = await lstat(path).then(
    (found) => found.isSocket(),
    () => false,
  );
  const probe = connect(path);
  const refusal = await once(probe, 'connect').catch((error: NodeJS.ErrnoException) => error.code);
  probe.destroy();
  return isSocket && refusal === 'ECONNREFUSED';
}
