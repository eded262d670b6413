import { UsageError } from '../usage-error.ts';

/**
 * The address of a service as the client takes it, without a slash at the end.
 * @param name of the option or variable that has it
 * @throws UsageError
 */
export function readBaseUrl(text: string, name: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.search || url.hash) {
    throw new UsageError(`${name} takes the address of a service, such as https://speech.example; it is ${text}.`);
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}
