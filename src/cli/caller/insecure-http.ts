import type { SpeechgateOptions } from '../../client/index.ts';
import { isConfidential } from '../../lib/loopback.ts';
import { UsageError } from '../usage-error.ts';
import { readConfig } from './stored-settings.ts';

const VARIABLE = 'SPEECHGATE_INSECURE';

/**
 * The option of a client that may ask this service. By http it may only on this machine, or where the user has allowed it.
 * @param isAllowed by this command
 * @throws UsageError before anything is sent
 */
export async function insecureHttp(
  folder: string,
  baseUrl: string,
  isAllowed = false,
): Promise<Pick<SpeechgateOptions, 'allowInsecureHttp'>> {
  if (isConfidential(new URL(baseUrl))) return {};
  if (isAllowed || readVariable() || (await readConfig(folder)).insecure?.[baseUrl] === true) {
    return { allowInsecureHttp: true };
  }
  throw new UsageError(
    `${baseUrl} is not encrypted: others on the way could read your account's id and change what the service answers. ` +
      `Nothing was sent. Use https, or allow it by speechgate connect ${baseUrl} --insecure (or ${VARIABLE}=true).`,
  );
}

function readVariable(): boolean {
  const said = process.env[VARIABLE]?.trim() ?? '';
  if (['', 'true', 'false'].includes(said)) return said === 'true';
  throw new UsageError(`${VARIABLE} takes true or false; it is ${said}.`);
}
