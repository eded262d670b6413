import { isIP } from 'node:net';
import { CLIENT_STALL_MS, STOP_IDLE_MS } from '../http/connection-guard.ts';
import { OVERLOAD_BOUNDS, type OverloadBounds } from '../http/overload.ts';
import type { SettingsReader } from './settings-reader.ts';

export interface EdgeConfig {
  /** Addresses and networks (CIDR) of the proxies in front. */
  readonly trustProxy: readonly string[];
  /** The persistent rate limit: requests per bucket within any window. */
  readonly rateLimit: { readonly max: number; readonly windowSeconds: number };
  /** Requests per client and minute that the edge lets through. */
  readonly edgeRateLimitMax: number;
  readonly maxConnections: number;
  /** How long a client may read nothing while there are bytes for it. */
  readonly clientStallMs: number;
  readonly overloadBounds: OverloadBounds;
  /** How long a process that is to stop goes on accepting, not ready, so that proxies learn of it. */
  readonly stopDrainMs: number;
  /** How long a process that stops keeps a connection that waits for nothing. */
  readonly stopIdleMs: number;
}

export function readEdge(reader: SettingsReader): EdgeConfig {
  const trustProxy = reader.list('TRUST_PROXY');
  if (!trustProxy.every(isNetwork)) {
    const fix = 'List CIDRs, such as 10.0.0.0/8,192.0.2.7.';
    reader.fault('TRUST_PROXY', 'holds something that is no address or network', fix);
  }
  return {
    trustProxy,
    rateLimit: {
      max: reader.integer('RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 30,
      windowSeconds: reader.integer('RATE_LIMIT_WINDOW_SECONDS', 1, 86_400) ?? 60,
    },
    edgeRateLimitMax: reader.integer('EDGE_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 600,
    maxConnections: reader.integer('MAX_CONNECTIONS', 1, 1_000_000) ?? 10_000,
    clientStallMs: CLIENT_STALL_MS,
    overloadBounds: OVERLOAD_BOUNDS,
    stopDrainMs: reader.integer('STOP_DRAIN_MS', 0, 600_000) ?? 0,
    stopIdleMs: STOP_IDLE_MS,
  };
}

function isNetwork(entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  if (bits === undefined) return true;
  // All addresses are no network: the server refuses to start with them.
  return /^[1-9]\d{0,2}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128);
}
