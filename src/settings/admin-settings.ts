import { isIP } from 'node:net';
import type { SettingsReader } from './settings-reader.ts';

export interface AdminConfig {
  /** Undefined where the operators' listener is off. */
  readonly adminPort: number | undefined;
  /** Where it listens, and the host names that it answers to, in lower case. */
  readonly admin: { readonly host: string; readonly names: readonly string[] };
}

const HOST_NAME = /^(?!.*\.\d+$)[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$/;

/** The first entry of ADMIN_HOST is the address to listen on; if it is a name, the listener answers to it too. */
export function readAdmin(reader: SettingsReader): AdminConfig {
  const adminPort = reader.integer('ADMIN_PORT', 1, 65535);
  const [host = '127.0.0.1', ...names] = reader.list('ADMIN_HOST').map((entry) => entry.toLowerCase());
  const isName = (entry: string) => HOST_NAME.test(entry) && isIP(entry) === 0;
  if ((isIP(host) === 0 && !isName(host)) || !names.every(isName)) {
    const fix = 'Set it to the address to listen on, then the host names to answer to: 0.0.0.0,metrics.internal.';
    reader.fault('ADMIN_HOST', 'holds something that is no address or host name', fix);
  }
  return { adminPort, admin: { host, names: isName(host) ? [host, ...names] : names } };
}
