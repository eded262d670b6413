import type { Logger } from 'pino';
import type { Metrics } from './metrics.ts';

/** Called when another service answers 401 or 403 to our credential. */
export type CredentialAlarm = () => void;

export function credentialAlarm(
  { metrics, log }: { readonly metrics: Metrics; readonly log: Pick<Logger, 'error'> },
  setting: string,
): CredentialAlarm {
  metrics.credentialUsed(setting);
  return () => {
    metrics.credentialRefused(setting);
    log.error({ setting }, 'a remote service rejected the credential of this setting');
  };
}
