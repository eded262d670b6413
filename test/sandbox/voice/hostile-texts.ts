const CHARACTERS = 4096;

/** 4096 UTF-16 units of the pattern, a pair of surrogates at the end maybe cut in two. */
function fill(pattern: string): string {
  return pattern.repeat(Math.ceil(CHARACTERS / pattern.length)).slice(0, CHARACTERS);
}

/** Longest texts that are soon spoken, by what is hard about them. */
export const HOSTILE_TEXTS: Readonly<Record<string, string>> = {
  'one word': fill('a'),
  'newlines inside': `a${fill('\n').slice(2)}b`,
  'combining marks': fill('e\u0301\u0302\u0303'),
  'a base with 4095 marks': `a${fill('\u0301').slice(1)}`,
  'marks of direction': fill('\u202eabc\u200f \u202c'),
  'control characters': fill('\u0000\u0001\u001b[31m'),
  'lone surrogates': fill('\ud800'),
  'invisible characters': fill('\u200b\u200d\ufeff'),
  'markup like SSML': fill('<speak><break time="10s"/>&amp;</speak> '),
  'command line options': fill('-voice kal -o /etc/passwd --help '),
  punctuation: fill('!?.,;:()"\'-'),
};

/** Longest texts with the longest speech, which the cap on audio is for. */
export const LONG_WINDED_TEXTS: Readonly<Record<string, string>> = {
  digits: fill('7'),
  'separate digits': fill('7 '),
  money: fill('$999999999999.99 '),
  consonants: fill('w'),
  symbols: fill('#'),
  'mixed symbols': fill('!?*#<>&@'),
  emoji: fill('😂🤷🏽‍♀️👨‍👩‍👧🇩🇪'),
  'a letter a line': fill('a\n'),
};

/** Texts that the voice can't read, as it knows English only. */
export const FOREIGN_TEXTS: Readonly<Record<string, string>> = {
  Chinese: fill('春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。'),
  Japanese: fill('こんにちは世界。私は学生です。'),
  Korean: fill('안녕하세요 세계. '),
  Arabic: fill('مرحبا بالعالم '),
  Hindi: fill('नमस्ते दुनिया '),
  Thai: fill('สวัสดีชาวโลก'),
  Russian: fill('Съешь же ещё этих мягких французских булок. '),
  Hebrew: 'בוקר טוב',
  Greek: 'Καλημέρα',
  Georgian: 'დილა',
};
