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
