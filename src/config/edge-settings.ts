import { isIP } from 'node:net';
import type { SettingsReader } from './settings-reader.ts';

/** HOST may be the path of a Unix socket. */
export const isSocketPath = (host: string): boolean => host.startsWith('/');

/** macOS takes no longer one, and Linux only four more. */
export const MAX_SOCKET_PATH_BYTES = 103;

/** Where it listens, for people. */
export const describeAddress = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  isSocketPath(host) ? host : `${host}:${port}`;

export function readEdge(reader: SettingsReader) {
  const trustProxy = reader.list('TRUST_PROXY');
  if (!trustProxy.every(isNetwork)) {
    const fix =
      'List the IP addresses or CIDR networks of your proxies, such as 10.0.0.0/8,192.0.2.7. A network of /0 is not allowed.';
    reader.fault('TRUST_PROXY', 'has an entry that is not an allowed IP address or network', fix);
  }
  return {
    trustProxy,
    /** The persistent window (R39). */
    rateLimit: {
      max: reader.integer('RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 30,
      windowSeconds: reader.integer('RATE_LIMIT_WINDOW_SECONDS', 1, 86_400) ?? 60,
    },
    edgeRateLimitMax: reader.integer('EDGE_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 600,
    maxConnections: reader.integer('MAX_CONNECTIONS', 1, 1_000_000) ?? 10_000,
    /** How long a stopping process still accepts requests while it reports not ready, so that proxies notice. */
    stopDrainMs: reader.integer('STOP_DRAIN_MS', 0, 600_000) ?? 0,
  };
}

function isNetwork(entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  if (bits === undefined) return true;
  // No /0: the server refuses to start with it.
  return /^[1-9]\d{0,2}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128);
}

const HOST_NAME = /^(?!.*\.\d+$)[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$/;

/** The first entry of ADMIN_HOST is the listen address. If it is a name, it is also an accepted host name. */
export function readAdmin(reader: SettingsReader) {
  const adminPort = reader.integer('ADMIN_PORT', 1, 65535);
  const [host = '127.0.0.1', ...names] = reader.list('ADMIN_HOST').map((entry) => entry.toLowerCase());
  const isName = (entry: string) => HOST_NAME.test(entry) && isIP(entry) === 0;
  if ((isIP(host) === 0 && !isName(host)) || !names.every(isName)) {
    const fix = 'Set it to the address to listen on, then the host names to accept, such as 0.0.0.0,metrics.internal.';
    reader.fault('ADMIN_HOST', 'is not an IP address or host name, or has a later entry that is not a host name', fix);
  }
  return { adminPort, admin: { host, names: isName(host) ? [host, ...names] : names } };
}
