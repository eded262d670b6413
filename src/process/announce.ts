import type { Config } from '../settings/config.ts';

/** A line like those of the log, whatever the level of that is. */
export function announce(msg: string): void {
  console.log(JSON.stringify({ level: 30, time: new Date().toISOString(), msg }));
}

/** Who listens, and where. */
export const listening = ({ serviceName, baseUrl, host, port }: Config): string =>
  `${serviceName} listens on ${baseUrl} (${host}:${port})`;
