/** Characters that a terminal or model interprets instead of showing, but not the joiner and selectors of emoji. */
export const UNPRINTABLE =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Co}\p{Cs}]|(?![\u200d\ufe0e\ufe0f])[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;

const MAX_CHARACTERS = 300;

/** Last in a message, so that nothing of it looks like our own text. */
export const serviceSays = (text: string): string => `The service says: ${serviceWords(text)}`;

/** One line of at most 300 printable characters. Introduce it as `serviceSays` does. */
export function serviceWords(text: string): string {
  const line = text.replace(/\s+/g, ' ').replace(UNPRINTABLE, '').replace(/ +/g, ' ').trim();
  const characters = [...line];
  if (characters.length <= MAX_CHARACTERS) return line;
  return `${characters.slice(0, MAX_CHARACTERS - 1).join('')}…`;
}

/** Whether a text can be an id from a service: short, without spaces, and allowed in a header. */
export const isServiceId = (text: string): boolean => /^[\x21-\x7e]{1,100}$/.test(text);

export const serviceId = (text: string): string => (isServiceId(text) ? text : 'unknown');

const MOST_NAMES = 20;

export function serviceNames(ids: readonly unknown[]): string {
  const plain = ids.filter((id): id is string => typeof id === 'string' && isServiceId(id));
  const shown = serviceWords(plain.slice(0, MOST_NAMES).join(', '));
  return plain.length > MOST_NAMES ? `${shown} and ${plain.length - MOST_NAMES} more` : shown;
}
