import { spawn } from 'node:child_process';
import { once } from 'node:events';

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [program: string, ...args: string[]]>>> = {
  darwin: ['open'],
  win32: ['explorer.exe'],
};

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/**
 * Opens an address that a service names in this user's browser. The system would hand one of another kind to any program.
 * Tells whether it was opened: it has to be https, or http on this machine, and there has to be a program for it.
 */
export async function openInBrowser(address: string): Promise<boolean> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isPage = url?.protocol === 'https:' || (url?.protocol === 'http:' && LOOPBACK.test(url.hostname));
  if (!url || !isPage) return false;
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open'];
  const opener = spawn(program, [...args, url.href], { stdio: 'ignore', detached: true });
  try {
    await once(opener, 'spawn');
    opener.unref();
    return true;
  } catch {
    return false;
  }
}
