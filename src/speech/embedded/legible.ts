/** A letter of a script of its own other than Latin. Common ones, such as the micro sign, are no script's own. */
const FOREIGN_LETTER = /(?!\p{Script=Latin}|\p{Script=Common}|\p{Script=Inherited})\p{L}/u;

/**
 * Where the first letter is that the embedded voice can't read, as it knows English only: one of another script than
 * Latin, whose transliteration nobody would understand. Undefined when there is none. Signs and emoji it reads by name.
 */
export function firstForeignLetter(text: string): number | undefined {
  return FOREIGN_LETTER.exec(text)?.index;
}
