import type { Logger } from 'pino';
import type { Metrics } from './metrics.ts';

/** Told whenever another service answers 401 or 403 to the credential that it was shown. */
export type CredentialAlarm = () => void;

/** Tells operators that the credential of a setting is refused: by the log, and by a metric that has an alert. */
export function credentialAlarm(
  { metrics, log }: { readonly metrics: Metrics; readonly log: Pick<Logger, 'error'> },
  setting: string,
): CredentialAlarm {
  metrics.credentialUsed(setting);
  return () => {
    metrics.credentialRefused(setting);
    log.error({ setting }, 'a service refuses our credential: correct the setting');
  };
}
