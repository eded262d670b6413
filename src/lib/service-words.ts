import { UNPRINTABLE } from './unprintable.ts';

const MAX_CHARACTERS = 300;

/**
 * A service's text for a person or a model: one line of printable characters, at most 300 of them. To be introduced as
 * the service's, such as by "The service says: ".
 */
export function serviceWords(text: string): string {
  const line = text.replace(/\s+/g, ' ').replace(UNPRINTABLE, '').replace(/ +/g, ' ').trim();
  const characters = [...line];
  if (characters.length <= MAX_CHARACTERS) return line;
  return `${characters.slice(0, MAX_CHARACTERS - 1).join('')}…`;
}

/** Whether it can be an id of a service, such as a model's or a trace id: short, without spaces, and sent as a header. */
export const isServiceId = (text: string): boolean => /^[\x21-\x7e]{1,100}$/.test(text);

/** The id of a service; `unknown` for what can't be one. */
export const serviceId = (text: string): string => (isServiceId(text) ? text : 'unknown');

const MOST_NAMES = 20;

/** Ids of a service for a sentence: the first of them, and how many more there are. */
export function serviceNames(ids: readonly unknown[]): string {
  const plain = ids.filter((id): id is string => typeof id === 'string' && isServiceId(id));
  const shown = serviceWords(plain.slice(0, MOST_NAMES).join(', '));
  return plain.length > MOST_NAMES ? `${shown} and ${plain.length - MOST_NAMES} more` : shown;
}
