/**
 * What a terminal or a model obeys rather than shows: control, format and invisible characters (those that turn the
 * direction of text included), separators, private use and lone surrogates. The joiner and the selectors inside emoji stay.
 */
export const UNPRINTABLE =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Co}\p{Cs}]|(?![\u200d\ufe0e\ufe0f])[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
