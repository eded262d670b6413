import type { FastifyInstance } from 'fastify';

interface Listener {
  readonly server: FastifyInstance;
  readonly host: string;
  readonly port: number;
  /** Names of the settings, for people. */
  readonly settings: { readonly host: string; readonly port: string };
}

/** @returns what is wrong with the settings, or undefined once it listens */
export async function listen({ server, host, port, settings }: Listener): Promise<string | undefined> {
  try {
    await server.listen({ host, port });
    return undefined;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE')
      return `${settings.port} ${port} is in use on ${host}. Stop the program that listens there, or set another port.`;
    if (code === 'EACCES')
      return `${settings.port} ${port} needs a right that this user lacks. Set a port from 1024 on, or give the right.`;
    if (['EADDRNOTAVAIL', 'EINVAL', 'ENOTFOUND', 'EAI_AGAIN'].includes(code))
      return `${settings.host} ${host} is no address of this machine (${code}). Set it to one, or to 0.0.0.0 for all.`;
    throw error;
  }
}
