import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { childEnv } from '../../lib/child-env.ts';
import { isLoopback } from '../../lib/loopback.ts';

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [program: string, ...args: string[]]>>> = {
  darwin: ['open'],
  win32: ['explorer.exe'],
};

/** Where the card processor has its pages. */
const PROCESSOR = 'https://checkout.stripe.com';

/**
 * Opens a page that a service names in this user's browser: the service's own or the card processor's, and no other. The
 * system would hand an address of another kind to any program. Returns whether it was opened.
 * @param baseUrl of the service
 */
export async function openInBrowser(address: string, baseUrl: string): Promise<boolean> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !isAllowed(url, new URL(baseUrl))) return false;
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open'];
  const opener = spawn(program, [...args, url.href], { stdio: 'ignore', detached: true, env: childEnv() });
  try {
    await once(opener, 'spawn');
    opener.unref();
    return true;
  } catch {
    return false;
  }
}

function isAllowed(page: URL, service: URL): boolean {
  if (page.username !== '' || page.password !== '') return false;
  if (page.origin === PROCESSOR || page.origin === service.origin) return true;
  // A sandbox has its checkout at another port.
  return page.protocol === 'http:' && isLoopback(page.hostname) && isLoopback(service.hostname);
}
