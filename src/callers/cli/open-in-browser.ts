import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { isLoopback } from '../../lib/loopback.ts';
import { childEnv } from '../../lib/programs.ts';

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [program: string, ...args: string[]]>>> = {
  darwin: ['open'],
  win32: ['explorer.exe'],
};

const PROCESSOR = 'https://checkout.stripe.com';

/** Opens only pages of the service or the card processor: the system could pass another URL to any program. */
export async function openInBrowser(address: string, baseUrl: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !isAllowed(url, new URL(baseUrl))) return false;
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open'];
  const opener = spawn(program, [...args, url.href], { stdio: 'ignore', detached: true, env: childEnv(env) });
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
  // The sandbox serves its checkout on another port.
  return page.protocol === 'http:' && isLoopback(page.hostname) && isLoopback(service.hostname);
}
