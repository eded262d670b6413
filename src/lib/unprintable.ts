/** Characters that a terminal or model interprets instead of showing, but not the joiner and selectors of emoji. */
export const UNPRINTABLE =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Co}\p{Cs}]|(?![\u200d\ufe0e\ufe0f])[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
