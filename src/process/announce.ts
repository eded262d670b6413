import type { Logger } from 'pino';
import type { Config } from '../settings/config.ts';

/** A line of the log, whatever the level of that is. */
export const announce = (log: Logger, msg: string): void => log.child({}, { level: 'info' }).info(msg);

/** Who listens, and where. */
export const listening = ({ serviceName, baseUrl, host, port }: Config): string =>
  `${serviceName} listens on ${baseUrl} (${host}:${port})`;
