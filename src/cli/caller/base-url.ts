import { UsageError } from '../usage-error.ts';

/**
 * The address of a service, without a slash at the end.
 * @param name of the argument or variable that has it
 * @throws UsageError
 */
export function readBaseUrl(text: string, name: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isOrigin = url && /^https?:$/.test(url.protocol) && [`${url.origin}`, `${url.origin}/`].includes(url.href);
  if (isOrigin) return url.origin;
  throw new UsageError(`${name} takes the address of a service, such as https://speech.example; it is ${text}.`);
}
