import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { hasCode } from '../postgres/system-error.ts';

/**
 * Makes this process the only one that uses the directory, until `release` or its own end, however that comes: the lock
 * is an abstract socket, which Linux removes with the process. Undefined when another process holds it.
 */
export async function lockDirectory(directory: string): Promise<{ release(): Promise<void> } | undefined> {
  const server = createServer();
  const name = createHash('sha256').update(directory).digest('hex');
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(`\0speechgate-chain-${name}`, resolve);
    });
  } catch (error) {
    if (hasCode(error, 'EADDRINUSE')) return undefined;
    throw error;
  }
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}
